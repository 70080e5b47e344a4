/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The flow table of one IP version; flow.h includes this once for WW_VERSION 4 and once for 6.
 *
 * docs/architecture.md ("The flow table") states the rules of replacement.
 */
#define WW_PASTE_(name, version) name##version
#define WW_PASTE(name, version) WW_PASTE_(name, version)
#define WW_V(name) WW_PASTE(name, WW_VERSION)

#define WW_KEY struct WW_V(ww_key)
#define WW_KEY_WORDS ((int)sizeof(WW_KEY) / 8)
#define WW_ENTRY struct WW_V(ww_entry)
#define WW_BUCKET struct WW_V(ww_bucket)

static __always_inline int WW_V(ww_same_key)(const WW_KEY *key, const __u64 *word)
{
	const __u64 *other = (const void *)key;
	__u64 difference = 0;

#pragma unroll
	for (int i = 0; i < WW_KEY_WORDS; i++)
		difference |= other[i] ^ word[i];
	return difference == 0;
}

static __always_inline void WW_V(ww_copy_words)(__u64 *key, const __u64 *word)
{
#pragma unroll
	for (int i = 0; i < WW_KEY_WORDS; i++)
		key[i] = word[i];
}

/* Looks through the whole bucket for the key, or else for the entry to give up. Returns the way | enum ww_lookup << 8.
 * The usual packet is found at the first try and does not come here. A global function: verified once, on its own. */
__noinline int WW_V(ww_search)(WW_BUCKET *bucket, const WW_KEY *key, __u32 first, __u64 now)
{
	__u32 reuse = WW_FLOW_REFUSED << 8, evict = WW_FLOW_REFUSED << 8;
	__u64 oldest_seen = ~0ULL;

	if (!bucket || !key)
		return WW_FLOW_REFUSED << 8;
	for (__u32 i = 0; i < WW_WAYS; i++) {
		__u32 way = first ^ i;
		WW_ENTRY *entry;
		int used, free;

		ww_hide(way); /* or the mask may come before the ^, through which Linux 6.1 follows no bounds */
		way &= WW_WAYS - 1;
		entry = &bucket->entry[way];
		used = entry->slot.packets != 0;
		free = !used || ww_elapsed(now, entry->slot.last_seen_ns) > ww_config.idle_timeout_ns;

		if (used && WW_V(ww_same_key)(&entry->key, (const void *)key))
			return way | (free ? WW_FLOW_EXPIRED : WW_FLOW_HIT) << 8;
		if (free) {
			if (reuse == WW_FLOW_REFUSED << 8)
				reuse = way | (used ? WW_FLOW_EXPIRED : WW_FLOW_NEW) << 8;
		} else if (!ww_protected(&entry->slot, now) && entry->slot.last_seen_ns < oldest_seen) {
			oldest_seen = entry->slot.last_seen_ns;
			evict = way | WW_FLOW_EVICTED << 8;
		}
	}
	return reuse != WW_FLOW_REFUSED << 8 ? reuse : evict;
}

#if WW_SHARED
/* What an entry is for a key, whatever else the bucket holds; under the entry's claim. */
static __always_inline __u32 WW_V(ww_judge)(const WW_ENTRY *entry, const WW_KEY *key, __u64 now)
{
	int idle = ww_elapsed(now, entry->slot.last_seen_ns) > ww_config.idle_timeout_ns;

	if (!entry->slot.packets)
		return WW_FLOW_NEW;
	if (WW_V(ww_same_key)(&entry->key, (const void *)key))
		return idle ? WW_FLOW_EXPIRED : WW_FLOW_HIT;
	if (idle)
		return WW_FLOW_EXPIRED;
	return ww_protected(&entry->slot, now) ? WW_FLOW_REFUSED : WW_FLOW_EVICTED;
}

/* ww_search in a table that others change meanwhile. first: the way whose claim the caller holds, and claim what it was: so no two CPUs
 * look for one key at a time, nor make two entries of it. The search is without claims; what it finds is claimed and judged
 * again. Returns way | enum ww_lookup << 8 | what the way's claim was << 32; no claim but that is held then. */
__noinline __u64 WW_V(ww_obtain)(WW_BUCKET *bucket, const WW_KEY *key, __u64 first, __u64 now, __u32 claim)
{
	__u32 lookup = WW_FLOW_MISSED;
	__u64 held = claim;

	if (!bucket || !key)
		return WW_FLOW_MISSED << 8;
	first &= WW_WAYS - 1;
	for (int i = 0; i < WW_CLAIM_TRIES; i++) {
		__u32 found = WW_V(ww_search)(bucket, key, first, now), way;
		WW_ENTRY *entry;

		ww_hide(found);
		lookup = found >> 8;
		way = found & (WW_WAYS - 1);
		if (lookup == WW_FLOW_REFUSED)
			break;
		entry = &bucket->entry[way];
		if (way != first) {
			held = __sync_lock_test_and_set(&entry->state.claim, WW_CLAIMED);
			if (held == WW_CLAIMED || WW_V(ww_judge)(entry, key, now) != lookup) {
				/* Another CPU is at it, or was between the search and the claim. */
				if (held != WW_CLAIMED)
					ww_release(&entry->state.claim, held);
				lookup = WW_FLOW_MISSED;
				bpf_ktime_get_ns();
				continue;
			}
		}
		if (lookup != WW_FLOW_HIT) {
			/* The packets last: they show that the rest is there. */
			*(volatile __u64 *)&entry->slot.last_seen_ns = now;
			WW_V(ww_copy_words)((void *)&entry->key, (const void *)key);
			asm volatile("" ::: "memory");
			*(volatile __u32 *)&entry->slot.packets = 1;
		}
		if (way != first)
			ww_release(&bucket->entry[first].state.claim, claim);
		return way | lookup << 8 | held << 32;
	}
	ww_release(&bucket->entry[first].state.claim, claim);
	return lookup << 8;
}
#endif

/* An entry of this packet alone. */
static __always_inline void WW_V(ww_use_blank)(struct ww_flow *flow, const __u64 *word, __u64 now)
{
	__u32 zero = 0;
	struct ww_blank_entry *blank = bpf_map_lookup_elem(&ww_blank, &zero);

	if (!blank)
		return;
	flow->way = WW_WAYS;
	flow->slot = &blank->slot;
	flow->state = &blank->state;
	WW_V(ww_copy_words)((void *)&blank->key, word);
#if WW_SHARED
	blank->slot.last_seen_ns = now;
#endif
}

/* Keeps a new verdict with the flow, unless the entry is another flow's by now, or another CPU was first. */
#if WW_SHARED
__noinline int WW_V(ww_keep)(__u32 index, __u32 way, __u32 before, __u32 after)
{
	WW_BUCKET *bucket = bpf_map_lookup_elem(&WW_V(ww_flows), &index);

	if (bucket && way < WW_WAYS)
		__sync_val_compare_and_swap(&WW_VERDICT_WORD(&bucket->entry[way].slot), before, after);
	return 0;
}
#endif

/* Finds the packet's entry, or makes room for one; in a shared table it is claimed then. shelf: where the key may lie for ww_search.
 * flow->slot stays NULL only if a map look-up failed. */
static __always_inline void WW_V(ww_find)(struct ww_flow *flow, const struct ww_packet *p, void *shelf,
					  __u32 cpu, __u64 now)
{
	__u64 word[WW_KEY_WORDS];
	WW_BUCKET *bucket;
	WW_ENTRY *entry;
	__u32 hash, found, index, mask = ww_config.bucket_mask;
#if WW_SHARED
	__u64 obtained;
#endif

	flow->swapped = WW_V(ww_swap)(p);
	WW_V(ww_make_key)(word, p, flow->swapped);
	hash = ww_hash(word, WW_KEY_WORDS);
	flow->bucket = (WW_SHARED ? 0 : cpu * (mask + 1)) + (hash >> 2 & mask);
	flow->way = hash & (WW_WAYS - 1);
	/* A copy, for with its address taken the whole of *flow would live on the stack. */
	index = flow->bucket;
	bucket = bpf_map_lookup_elem(&WW_V(ww_flows), &index);
	if (ww_unlikely(!bucket))
		return;
	entry = &bucket->entry[flow->way];
#if WW_SHARED
	flow->claim = ww_claim(&entry->state.claim);
	if (ww_unlikely(flow->claim == WW_CLAIMED)) {
		flow->lookup = WW_FLOW_MISSED;
		flow->elapsed_ns = 0;
		WW_V(ww_use_blank)(flow, word, now);
		return;
	}
#endif
	flow->elapsed_ns = ww_elapsed(now, entry->slot.last_seen_ns);
	if (ww_unlikely(!entry->slot.packets || !WW_V(ww_same_key)(&entry->key, word) ||
			flow->elapsed_ns > ww_config.idle_timeout_ns)) {
		ww_hide(shelf); /* or its address would be made for every packet, and kept on the stack */
		WW_V(ww_copy_words)(shelf, word);
#if WW_SHARED
		obtained = WW_V(ww_obtain)(bucket, shelf, flow->way, now, flow->claim);
		ww_hide(obtained);
		flow->claim = obtained >> 32;
		found = obtained;
#else
		found = WW_V(ww_search)(bucket, shelf, flow->way, now);
		ww_hide(found);
#endif
		flow->lookup = found >> 8;
		flow->elapsed_ns = 0;
		if (flow->lookup == WW_FLOW_REFUSED || (WW_SHARED && flow->lookup == WW_FLOW_MISSED)) {
			WW_V(ww_use_blank)(flow, word, now);
			return;
		}
		flow->way = found & (WW_WAYS - 1);
		entry = &bucket->entry[flow->way];
		if (flow->lookup == WW_FLOW_HIT)
			flow->elapsed_ns = ww_elapsed(now, entry->slot.last_seen_ns);
#if !WW_SHARED
		WW_V(ww_copy_words)((void *)&entry->key, word);
#endif
	}
	flow->slot = &entry->slot;
	flow->state = &entry->state;
}

#undef WW_BUCKET
#undef WW_ENTRY
#undef WW_KEY_WORDS
#undef WW_KEY
#undef WW_V
#undef WW_PASTE
#undef WW_PASTE_
