/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for libbpf's header when the data path is compiled for this processor: maps are plain memory, helpers plain functions.
 *
 * What a benchmark does not reach (tries, ring buffers, tail calls) ends the run instead of doing something else than the
 * kernel would.
 */
#ifndef NATIVE_BPF_HELPERS_H
#define NATIVE_BPF_HELPERS_H

#include <linux/bpf.h>
#include <stdlib.h>
#include <time.h>

#define SEC(name)
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))

/* A map's declaration as in BTF, but that its values are there: room for NATIVE_ENTRIES of them, of which those that nothing touches
 * take no memory. */
#define __uint(name, number) int(*name)[number]
#define __type(name, type) NATIVE_MEMBER_##name(type)
#define NATIVE_MEMBER_key(type) type *key
#define NATIVE_MEMBER_value(type) __attribute__((aligned(4096))) type value[NATIVE_ENTRIES]

#define NATIVE_MAP_TYPE(map) (sizeof(*(map)->type) / sizeof(int))

/* Arrays, inlined as the kernel's verifier does it: the bound, then the address. */
#define bpf_map_lookup_elem(map, key_)                                              \
	({                                                                          \
		const __u32 native_index = *(const __u32 *)(key_);                  \
		if (NATIVE_MAP_TYPE(map) != BPF_MAP_TYPE_ARRAY &&                   \
		    NATIVE_MAP_TYPE(map) != BPF_MAP_TYPE_PERCPU_ARRAY)              \
			abort();                                                    \
		native_index < NATIVE_ENTRIES ? &(map)->value[native_index] : NULL; \
	})

#define bpf_tail_call(context, map, index) abort()
#define bpf_skb_pull_data(context, length) abort()
#define bpf_xdp_get_buff_len(context) (abort(), 0)
/* No packet is steered: the load has nothing of it. */
#define bpf_check_mtu(context, index, mtu, more, flags) (abort(), (void)(mtu), 0)
#define bpf_redirect(index, flags) (abort(), (void)(index), 0)
#define bpf_fib_lookup(context, route, size, flags) (abort(), 0)
#define bpf_redirect_map(map, index, flags) (abort(), (void)(index), 0)
#define bpf_clone_redirect(context, index, flags) (abort(), (void)(index), 0)
#define bpf_perf_event_output(context, map, flags, data, size) (abort(), (void)(flags), (void)(data), 0)
#define bpf_get_prandom_u32() (abort(), 0U)
#define bpf_csum_update(context, sum) abort()
#define bpf_csum_diff(from, from_size, to, to_size, seed) (abort(), (void)(to), (void)(seed), 0)
#define bpf_xdp_load_bytes(context, offset, to, size) (abort(), (void)(offset), (void)(to), (void)(size), 0)
#define bpf_xdp_store_bytes(context, offset, from, size) (abort(), (void)(offset), (void)(from), (void)(size), 0)
#define bpf_xdp_adjust_tail(context, more) (abort(), (void)(more), 0)
#define bpf_tcp_gen_syncookie(socket, ip, ip_size, tcp, size) (abort(), (void)(ip), (void)(tcp), (void)(size), 0)
#define bpf_tcp_raw_gen_syncookie_ipv4(ip, tcp, size) (abort(), (void)(ip), (void)(tcp), (void)(size), 0)
#define bpf_tcp_raw_gen_syncookie_ipv6(ip, tcp, size) (abort(), (void)(ip), (void)(tcp), (void)(size), 0)
#define bpf_tcp_raw_check_syncookie_ipv4(ip, tcp) (abort(), (void)(ip), (void)(tcp), 0)
#define bpf_tcp_raw_check_syncookie_ipv6(ip, tcp) (abort(), (void)(ip), (void)(tcp), 0)
#define bpf_map_update_elem(map, key, value, flags) (abort(), (void)(key), (void)(value), 0)
#define bpf_xdp_adjust_meta(context, delta) (abort(), (void)(delta), 0)
#define bpf_xdp_adjust_head(context, delta) (abort(), (void)(delta), 0)
#define bpf_skb_adjust_room(context, delta, mode, flags) (abort(), (void)(delta), (void)(flags), 0)

/* No socket is this program's. */
static __always_inline struct bpf_sock *native_socket(void)
{
	return NULL;
}

#define bpf_skc_lookup_tcp(context, tuple, size, netns, flags) ((void)(tuple), (void)(size), native_socket())
#define bpf_sk_lookup_udp(context, tuple, size, netns, flags) ((void)(tuple), (void)(size), native_socket())
#define bpf_sk_release(socket) ((void)(socket))

/* The engine's CPU is a constant of its translation too. */
#define bpf_get_smp_processor_id() 0U

static __always_inline __u64 native_clock(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time); /* vDSO */
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

#define bpf_ktime_get_ns() native_clock(CLOCK_MONOTONIC)
#define bpf_ktime_get_boot_ns() native_clock(CLOCK_BOOTTIME)
#define bpf_ktime_get_coarse_ns() native_clock(CLOCK_MONOTONIC_COARSE)

/* User space has no jiffies: ww_config.jiffy_ns is 0, and the coarse clock is read instead. */
static __always_inline __u64 bpf_jiffies64(void)
{
	abort();
}

#endif
