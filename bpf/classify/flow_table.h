/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A table of one IP version, of flows or of aggregates; table.h includes this once for WW_VERSION 4 and once for 6.
 *
 * docs/architecture.md ("The flow table") states the rules of replacement.
 */
#define WW_V(name) WW_PASTE(name, WW_TABLE, WW_VERSION)

#if WW_TABLE_FLOWS
#define WW_KEY WW_PASTE(WW_FLOW_KEY, , WW_VERSION)
#else
#define WW_KEY struct WW_PASTE(ww_key, , WW_VERSION)
#endif
#define WW_KEY_WORDS ((int)sizeof(WW_KEY) / 8)
#define WW_ENTRY struct WW_V(ww_entry)
#define WW_BUCKET struct WW_V(ww_bucket)
#define WW_TABLE_MAP_V WW_PASTE(WW_TABLE_MAP, , WW_VERSION)

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

/* Searches the whole bucket for the key, or else for the entry to replace. Returns the way (the entry's place in the bucket)
 * | enum ww_lookup << 8. Most packets find their entry at the first try and do not get here. A global function: verified once, on its
 * own. */
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

		ww_hide(way); /* clang 22 would put the mask before the ^, and Linux 6.1 tracks no bounds through ^ */
		way &= WW_WAYS - 1;
		entry = &bucket->entry[way];
		used = entry->slot.packets != 0;
		free = !used || ww_elapsed(now, entry->slot.last_seen_ns) > WW_TABLE_IDLE_NS;

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

#if WW_TABLE_SHARED
/* What an entry is to a key, whatever else is in the bucket. The caller holds the entry's claim. */
static __always_inline __u32 WW_V(ww_match_entry)(const WW_ENTRY *entry, const WW_KEY *key, __u64 now)
{
	int idle = ww_elapsed(now, entry->slot.last_seen_ns) > WW_TABLE_IDLE_NS;

	if (!entry->slot.packets)
		return WW_FLOW_NEW;
	if (WW_V(ww_same_key)(&entry->key, (const void *)key))
		return idle ? WW_FLOW_EXPIRED : WW_FLOW_HIT;
	if (idle)
		return WW_FLOW_EXPIRED;
	return ww_protected(&entry->slot, now) ? WW_FLOW_REFUSED : WW_FLOW_EVICTED;
}

/* ww_search in a table that other CPUs change at the same time. first: the way whose claim the caller holds, and claim: its value
 * before. Holding it keeps two CPUs from searching for the same key at once and from making two entries for it. The search itself takes
 * no claims; what it finds is claimed and judged again. Returns way | enum ww_lookup << 8 | the way's claim before << 32; that claim is
 * the only one held then. */
__noinline __u64 WW_V(ww_obtain)(WW_BUCKET *bucket, const WW_KEY *key, __u64 first, __u64 now, __u32 claim)
{
	__u32 lookup = WW_FLOW_MISSED;

	if (!bucket || !key)
		return WW_FLOW_MISSED << 8;
	first &= WW_WAYS - 1;
	for (int i = 0; i < WW_CLAIM_TRIES; i++) {
		__u32 found = WW_V(ww_search)(bucket, key, first, now), way;
		/* Not what an earlier try left here: this one may find the first way. */
		__u64 held = claim;
		WW_ENTRY *entry;

		ww_hide(found);
		lookup = found >> 8;
		way = found & (WW_WAYS - 1);
		if (lookup == WW_FLOW_REFUSED)
			break;
		entry = &bucket->entry[way];
		if (way != first) {
			held = __sync_lock_test_and_set(&entry->state.claim, WW_CLAIMED);
			if (held == WW_CLAIMED || WW_V(ww_match_entry)(entry, key, now) != lookup) {
				/* Another CPU has it, or had it between the search and the claim. */
				if (held != WW_CLAIMED)
					ww_release(&entry->state.claim, held);
				lookup = WW_FLOW_MISSED;
				bpf_ktime_get_ns();
				continue;
			}
		}
		if (lookup != WW_FLOW_HIT) {
			/* The packet count last: it shows that the rest is complete. */
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

/* An entry for this packet alone. */
static __always_inline void WW_V(ww_use_blank)(WW_FLOW *flow, const __u64 *word, __u64 now)
{
	__u32 zero = 0;
	struct ww_blank_entry *blank = bpf_map_lookup_elem(&ww_blank, &zero);

	if (!blank)
		return;
	flow->way = WW_WAYS;
	flow->slot = &WW_TABLE_BLANK(blank)->slot;
	flow->state = &WW_TABLE_BLANK(blank)->state;
	WW_V(ww_copy_words)((void *)&WW_TABLE_BLANK(blank)->key, word);
#if WW_TABLE_SHARED
	WW_TABLE_BLANK(blank)->slot.last_seen_ns = now;
#endif
}

/* Keeps a new verdict with the flow, unless the entry belongs to another flow by now, or another CPU was first: then it returns 0. */
#if WW_TABLE_FLOWS && WW_SHARED
__noinline int WW_V(ww_keep)(__u32 index, __u32 way, __u32 before, __u32 after)
{
	WW_BUCKET *bucket = bpf_map_lookup_elem(&WW_TABLE_MAP_V, &index);

	if (!bucket || way >= WW_WAYS)
		return 1;
	return __sync_val_compare_and_swap(&WW_VERDICT_WORD(&bucket->entry[way].slot), before, after) ==
	       before;
}
#endif

/* Has an entry's first line fetched while the clock is read: eBPF has no prefetch, but the fence of the clock waits for loads only, not for
 * stores. It writes what is there anyway. */
static __always_inline void WW_V(ww_touch)(WW_ENTRY *entry)
{
#if WW_TABLE_SHARED
	/* The last byte of the VLAN ids, which such a key has not. */
	((volatile __u8 *)&entry
		 ->key)[WW_VERSION == 4 ? sizeof(struct ww_key4) - 1 : sizeof(struct ww_key6) - 1] = 0;
#else
	/* Only shared tables use it. */
	*(volatile __u16 *)&entry->slot.generation = 0;
#endif
}

#if !WW_TABLE_FLOWS
/* The same for the entry that a packet will probably have in its aggregate, before its flow is looked for. */
static __always_inline void WW_V(ww_expect)(const struct ww_packet *p)
{
	__u64 word[WW_KEY_WORDS];
	WW_BUCKET *bucket;
	__u32 hash, index;

	WW_PASTE(ww_make_key, , WW_VERSION)(word, p, 0, WW_TABLE_KEY);
	hash = ww_hash(word, WW_KEY_WORDS);
	index = hash >> 2 & WW_TABLE_MASK;
	bucket = bpf_map_lookup_elem(&WW_TABLE_MAP_V, &index);
	if (bucket)
		WW_V(ww_touch)(&bucket->entry[hash & (WW_WAYS - 1)]);
}
#endif

/* Finds the packet's entry, or makes room for one; in a shared table it is claimed on return. key_scratch: memory for the key, for ww_search; of
 * an aggregate it has the key already.
 * flow->slot stays NULL only if a map look-up failed. context gets the time, if that is read late. */
static __always_inline void WW_V(ww_find)(WW_FLOW *flow, const struct ww_packet *p, void *key_scratch,
					  __u32 cpu, struct ww_context *context, WW_HOOK_CTX *ctx)
{
	__u64 now = context->now_ns;
#if WW_TABLE_FLOWS
	__u64 word[WW_KEY_WORDS];
#else
	/* Read where it is: this function is called at the end of the longest nest, where a copy has no room on the stack. */
	const __u64 *word = key_scratch;
#endif
	WW_BUCKET *bucket;
	WW_ENTRY *entry;
	__u32 hash, found, index, mask = WW_TABLE_MASK;
#if WW_TABLE_SHARED
	__u64 obtained;
#endif

#if WW_TABLE_FLOWS
	flow->swapped = WW_PASTE(ww_swap, , WW_VERSION)(p);
	WW_PASTE(ww_make_key, , WW_VERSION)(word, p, flow->swapped, WW_TABLE_KEY);
#if WW_KEY_TEID
	word[WW_KEY_WORDS - 1] = p->teid;
#endif
#endif
	hash = ww_hash(word, WW_KEY_WORDS);
	flow->hash = hash;
	flow->bucket = (WW_TABLE_SHARED ? 0 : cpu * (mask + 1)) + (hash >> 2 & mask);
#if WW_TABLE_FLOWS
	/* Where a number moves a pointer, the verifier compares everything it was computed from, and would follow each protocol to this place by
	 * itself. What is read from memory is unknown to it. */
	*(volatile __u32 *)key_scratch = hash;
	hash = *(volatile __u32 *)key_scratch;
#endif
	flow->way = hash & (WW_WAYS - 1);
	/* A copy: if the address of *flow were taken, all of it would live on the stack. */
	index = flow->bucket;
	bucket = bpf_map_lookup_elem(&WW_TABLE_MAP_V, &index);
	if (ww_unlikely(!bucket))
		return;
	entry = &bucket->entry[flow->way];
#if WW_TABLE_FLOWS
	if (ww_reads_clock_late()) {
		WW_V(ww_touch)(entry);
		now = context->now_ns = ww_now(ctx);
	}
#endif
#if WW_TABLE_SHARED
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
			flow->elapsed_ns > WW_TABLE_IDLE_NS)) {
#if WW_TABLE_FLOWS
		ww_hide(key_scratch); /* otherwise its address would be computed for every packet and kept on the stack */
		WW_V(ww_copy_words)(key_scratch, word);
#endif
#if WW_TABLE_SHARED
		obtained = WW_V(ww_obtain)(bucket, key_scratch, flow->way, now, flow->claim);
		ww_hide(obtained);
		flow->claim = obtained >> 32;
		found = obtained;
#else
		found = WW_V(ww_search)(bucket, key_scratch, flow->way, now);
		ww_hide(found);
#endif
		flow->lookup = found >> 8;
		flow->elapsed_ns = 0;
		if (flow->lookup == WW_FLOW_REFUSED || (WW_TABLE_SHARED && flow->lookup == WW_FLOW_MISSED)) {
			WW_V(ww_use_blank)(flow, word, now);
			return;
		}
		flow->way = found & (WW_WAYS - 1);
		entry = &bucket->entry[flow->way];
		if (flow->lookup == WW_FLOW_HIT)
			flow->elapsed_ns = ww_elapsed(now, entry->slot.last_seen_ns);
#if !WW_TABLE_SHARED
		WW_V(ww_copy_words)((void *)&entry->key, word);
#endif
	}
	flow->slot = &entry->slot;
	flow->state = &entry->state;
}

#undef WW_TABLE_MAP_V
#undef WW_BUCKET
#undef WW_ENTRY
#undef WW_KEY_WORDS
#undef WW_KEY
#undef WW_V
