// SPDX-License-Identifier: Apache-2.0
//! Features of the instruction set and of compiled programs, each a small C program.

use wirewise_engine::Linked;

use crate::support::{compile, frame, kernel, load, same_everywhere, same_with_packets};

#[test]
fn packets_are_read_and_written() {
    let source = r#"
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 sum = 0;
	put(0, end - data);
	put(1, ctx->data_meta == ctx->data);
	if (data + 40 > end)
		return XDP_ABORTED;
	for (int i = 0; i < 40; i++)
		sum = sum * 31 + data[i];
	put(2, sum);
	put(3, *(__u32 *)(data + 13));
	put(4, *(__s16 *)(data + 21));
	*(__u16 *)(data + 7) = 0xbeef;
	*(__u64 *)(data + 15) = sum;
	return XDP_TX;
}"#;
    let packets: Vec<_> = [14, 39, 40, 64].map(|length| frame()[..length].to_vec()).to_vec();
    same_with_packets(source, &packets);
}

#[test]
fn subprograms_get_pointers_into_their_callers_stack() {
    same_everywhere(
        r#"
struct pair { __u64 a, b; __u32 c[6]; };
static __noinline int fill(struct pair *pair, __u64 seed)
{
	pair->a += seed;
	pair->b = pair->a * 3;
	for (int i = 0; i < 6; i++)
		pair->c[i] = seed >> i;
	return pair->c[1] & 0xff;
}
static __noinline __u64 sum(const struct pair *pair, int deep)
{
	struct pair copy = *pair;
	__u64 total = copy.a + copy.b;
	int more = fill(&copy, total);
	for (int i = 0; i < 6; i++)
		total = total * 7 + copy.c[i];
	return total + more + deep;
}
__noinline int global(__u32 x, __u64 y) { volatile __u64 z = y * x; return z + 1; }
SEC("xdp") int test(struct xdp_md *ctx)
{
	struct pair pair = {.a = ctx->rx_queue_index + 5};
	int first = fill(&pair, 0x123456789abcULL);
	put(0, first);
	put(1, sum(&pair, 1));
	put(2, sum(&pair, 2));
	put(3, pair.a ^ pair.b);
	put(4, global(pair.c[2], pair.a));
	return global(3, 4) & 3;
}"#,
    );
}

#[test]
fn contexts_are_spilled_and_handed_on() {
    same_everywhere(
        r#"
static __noinline __u64 length(struct xdp_md *ctx, int twice)
{
	__u64 bytes = ctx->data_end - ctx->data;
	return twice ? bytes * 2 : bytes;
}
struct holder { __u64 before; struct xdp_md *ctx; __u64 after; };
static __noinline __u64 held(struct holder *holder)
{
	holder->after = 77;
	return holder->ctx->data_end - holder->ctx->data + holder->before;
}
SEC("xdp") int test(struct xdp_md *ctx)
{
	struct xdp_md *volatile spilled = ctx;
	struct holder holder = {1, ctx, 2};
	__u64 sum = length(ctx, 0);
	asm volatile("" ::: "r6", "r7", "r8", "r9", "memory");
	sum = sum * 1000 + length(spilled, 1);
	asm volatile("" ::: "r6", "r7", "r8", "r9", "memory");
	sum = sum * 1000 + held(&holder);
	put(0, sum);
	put(1, holder.after);
	put(2, spilled->ingress_ifindex * 0 + spilled->rx_queue_index);
	return XDP_PASS;
}"#,
    );
}

#[test]
fn atomics_of_both_widths() {
    let source = r#"
struct cell { __u64 wide; __u32 narrow; __u32 rest; };
ARRAY(cells, struct cell, 2);
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u32 zero = 0;
	__u64 local = 40;
	struct cell *cell = bpf_map_lookup_elem(&cells, &zero);
	if (!cell)
		return XDP_ABORTED;
	cell->wide = 0xfffffffffffffff0ULL;
	cell->narrow = 0xfffffff0;
	cell->rest = 0x55555555;
	__sync_fetch_and_add(&cell->wide, 0x1f);
	__sync_fetch_and_add(&cell->narrow, 0x1f);
	put(0, cell->wide);
	put(1, cell->narrow);
	FETCH
	put(30, local);
	return XDP_PASS;
}"#;
    let fetch = r#"
	put(2, __sync_fetch_and_add(&cell->wide, 5));
	put(3, __sync_fetch_and_add(&cell->narrow, -1));
	put(4, __sync_fetch_and_or(&cell->wide, 0xf0f0));
	put(5, __sync_fetch_and_and(&cell->wide, ~0x30ULL));
	put(6, __sync_fetch_and_xor(&cell->narrow, 0xffff));
	put(7, __sync_lock_test_and_set(&cell->wide, 0x8000000000000001ULL));
	put(8, __sync_lock_test_and_set(&cell->narrow, 9));
	put(9, __sync_val_compare_and_swap(&cell->wide, 0x8000000000000001ULL, 12));
	put(10, __sync_val_compare_and_swap(&cell->wide, 13, 14));
	put(11, __sync_val_compare_and_swap(&cell->narrow, 9, 0x80000000));
	put(12, __sync_val_compare_and_swap(&cell->narrow, 8, 1));
	put(13, __sync_fetch_and_add(&local, 2));
	put(14, cell->wide);
	put(15, cell->narrow);
	put(16, cell->rest);"#;
    same_everywhere(&source.replace("FETCH", ""));
    // Fetching atomics came with v3; older ones have the wide addition alone.
    crate::support::same_from_v3(&source.replace("FETCH", fetch));
}

#[test]
fn global_data_is_read_and_written() {
    same_everywhere(
        r#"
const volatile __u64 frozen[3] = {1, 0x1122334455667788ULL, 3};
const volatile struct { __u32 choice; __u16 small; __s8 sign; } config SEC(".rodata.config") = {2, 65535, -3};
__u64 counter = 41;
__u32 zeros[5];
static volatile __u16 hidden = 7;
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u64 index = ctx->rx_queue_index & 1;
	counter += frozen[1];
	zeros[3] += config.choice;
	zeros[index + 1]++;
	hidden++;
	put(0, frozen[index + 1]);
	put(1, config.small);
	put(2, config.sign);
	if (config.choice == 2)
		put(3, hidden);
	else
		put(4, hidden);
	return config.choice;
}"#,
    );
}

#[test]
fn tail_calls_go_on_and_end_after_33() {
    same_everywhere(
        r#"
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 4); __uint(key_size, 4); __uint(value_size, 4); }
	tails SEC(".maps");
__u64 rounds;
SEC("xdp") int tail_0(struct xdp_md *ctx)
{
	rounds++;
	bpf_tail_call(ctx, &tails, 0);
	put(0, rounds);
	bpf_tail_call(ctx, &tails, 1);
	put(1, rounds);
	return XDP_DROP;
}
SEC("xdp") int tail_1(struct xdp_md *ctx)
{
	put(2, ctx->data_end - ctx->data);
	return XDP_TX;
}
SEC("xdp") int test(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &tails, 3);
	put(3, 5);
	bpf_tail_call(ctx, &tails, 99);
	put(4, 6);
	if (rounds)
		bpf_tail_call(ctx, &tails, 1);
	bpf_tail_call(ctx, &tails, 0);
	return XDP_ABORTED;
}"#,
    );
}

#[test]
fn tail_calls_from_subprograms_return_to_their_caller() {
    same_everywhere(
        r#"
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 4); __uint(key_size, 4); __uint(value_size, 4); }
	tails SEC(".maps");
static __noinline __u64 behind(volatile __u64 *value) { return *value; }
SEC("xdp") int tail_0(struct xdp_md *ctx)
{
	__u64 own = 11;
	put(1, behind(&own));
	bpf_tail_call(ctx, &tails, 1);
	return 40;
}
SEC("xdp") int tail_1(struct xdp_md *ctx)
{
	put(2, ctx->data_end - ctx->data);
	return 50;
}
static __noinline int jump(struct xdp_md *ctx, __u32 where)
{
	volatile int kept = 3;
	bpf_tail_call(ctx, &tails, 0);
	return kept + where;
}
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u64 own = 5;
	behind(&own);
	int first = jump(ctx, 1);
	put(0, first);
	put(3, behind(&own));
	return first + jump(ctx, 2);
}"#,
    );
}

#[test]
fn loops_call_back() {
    same_everywhere(
        r#"
struct data { __u64 sum; __u32 stop; struct xdp_md *ctx; };
static int round(__u32 index, struct data *data)
{
	data->sum = data->sum * 3 + index + (data->ctx->data_end - data->ctx->data);
	return index == data->stop;
}
static int nested(__u32 index, __u64 *total)
{
	*total += index;
	return 0;
}
SEC("xdp") int test(struct xdp_md *ctx)
{
	struct data data = {.stop = 1000, .ctx = ctx};
	__u64 total = 1;
	put(0, bpf_loop(100, round, &data, 0));
	put(1, data.sum);
	data.stop = 7;
	put(2, bpf_loop(100, round, &data, 0));
	put(3, bpf_loop(0, round, &data, 0));
	put(4, bpf_loop(1 << 24, round, &data, 0));
	put(5, bpf_loop(5, round, &data, 1));
	put(6, data.sum);
	put(7, bpf_loop(1000, nested, &total, 0));
	put(8, total);
	return XDP_PASS;
}"#,
    );
}

#[test]
fn arithmetic_of_compiled_code() {
    same_everywhere(
        r#"
ARRAY(in, __u64, 8);
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u64 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 place = 0;
	if (data + 8 > end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 7; i++) {
		__u64 a = data[i], b = data[i + 1] >> (i * 9);
		__u32 c = a, d = b;
		put(place++, a + b * 3 - (a ^ b));
		put(place++, a / (b | 1) + a % (b | 1));
		put(place++, (__u64)(c / (d | 1)) << 32 | c % (d | 1));
		put(place++, (a << (b & 63)) + (a >> (d & 63)) + ((__s64)a >> (c & 63)));
		put(place++, (c << (d & 31)) + (c >> (d & 31)) + ((__s32)c >> (d & 31)));
		put(place++, ((__s32)c < (__s32)d) | ((__s64)a < (__s64)b) << 1 | (c < d) << 2 | (a <= b) << 3 | (a & b ? 16 : 0));
		put(place++, __builtin_bswap64(a) + __builtin_bswap32(c) + __builtin_bswap16(c));
		put(place++, (__s8)a + (__s16)b * (__s64)(__s32)c);
	}
	return c_ok(data[0]);
}"#
        .replace("c_ok(data[0])", "data[0] & 1")
        .as_str(),
    );
}

/// As networks are: one long block that goes through tables from end to end, jumps in between, and adds numbers to what it has.
#[test]
fn long_blocks_over_tables_and_sums() {
    let jumps = [0, 1, 2, 120, 121, 63, 199, 7, 8, 9, 150];
    let mut lines = String::new();
    for at in 0..220usize {
        let word = if at % 5 == 0 { jumps[at / 5 % jumps.len()] } else { at % 200 };
        // Numbers whose sums fit 32 bits, and numbers whose sums do not.
        let number = if at % 7 == 0 { i32::MAX - at as i32 } else { (at as i32 - 100) * 9973 };
        lines += &format!(
            "a += {number}LL; HIDE(a); sum += a * table[{word}]; HIDE(sum); b += {}LL; HIDE(b); scratch[{}] = sum ^ b;\n",
            -number,
            at * 3 % 32
        );
    }
    let words: Vec<String> =
        (0..200u64).map(|at| format!("{}ULL", at.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    same_everywhere(&format!(
        r#"
#define HIDE(x) asm volatile("" : "+r"(x))
static const volatile __u64 table[200] SEC(".rodata.table") = {{{}}};
volatile __u64 scratch[32] SEC(".data.scratch");
SEC("xdp") int test(struct xdp_md *ctx)
{{
	__u64 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, a, b, sum;
	if (data + 8 > end)
		return XDP_ABORTED;
	a = data[0], b = data[1], sum = data[2];
{lines}	put(0, sum);
	put(1, a);
	put(2, b);
	return XDP_PASS;
}}"#,
        words.join(", ")
    ));
}

#[test]
fn version_4_divides_with_sign_and_swaps() {
    crate::support::same_from_v4(
        r#"
SEC("xdp") int test(struct xdp_md *ctx)
{
	__s64 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 place = 0;
	if (data + 8 > end)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 7; i++) {
		__s64 a = data[i], b = data[i + 1] >> (i * 8);
		__s32 c = a, d = b;
		put(place++, a / (b | 1));
		put(place++, a % (b | 1));
		put(place++, c / (d | 1));
		put(place++, c % (d | 1));
		put(place++, *(__s8 *)&data[i] + *(__s16 *)&data[i] * *(__s32 *)&data[i]);
		put(place++, (__s64)(__s8)a ^ (__s64)(__s16)b ^ (__s64)(__s32)a);
		put(place++, __builtin_bswap64(a) ^ __builtin_bswap32(b) ^ __builtin_bswap16(b));
	}
	return XDP_PASS;
}"#,
    );
}

/// What libbpf was told not to load, nobody verified.
#[test]
fn programs_that_were_not_loaded_are_not_trusted() {
    let source = r#"
SEC("xdp") int test(struct xdp_md *ctx) { put(0, 1); return 2; }
SEC("?xdp") int wild(struct xdp_md *ctx) { return *(volatile int *)16; }"#;
    let object = compile(source, "v3");
    assert_eq!(Linked::from_elf(&object).unwrap().programs().len(), 2);
    if kernel() {
        let linked = Linked::from_loaded(&load(&object)).unwrap();
        let names: Vec<_> = linked.programs().iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["test"]);
    }
}
