// SPDX-License-Identifier: Apache-2.0
//! Batches look ahead at later packets, and must leave what packets one by one leave.

use wirewise_engine::{Backend, Engine, Linked, PacketSpan};

use crate::support::{compile, engine_maps, options};

const PACKETS: usize = 3000;
const PACKET_BYTES: usize = 64;

/// Before it looks its element up, it does what a scout must not do or cannot know: writes to packets and maps, counts, reads what it counted
/// and the time, keeps things on the stack, and calls a function for some packets.
const SOURCE: &str = r#"
struct entry { __u64 word[16]; };
ARRAY(table, struct entry, 8192);
volatile __u64 count SEC(".data.count");
volatile __u64 odd SEC(".data.odd");
__noinline int away(__u32 key)
{
	return key % 3 + bpf_get_smp_processor_id();
}
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 kept[4] = {}, now = bpf_ktime_get_ns(), before;
	struct entry *entry;
	__u32 key;
	if (data + 16 > end)
		return XDP_ABORTED;
	before = __sync_fetch_and_add(&count, 1);
	data[8] = before;
	kept[1] = kept[3] = data[0] * 2654435761u;
	if (data[2] == 7)
		odd += away(data[1]);
	put(data[0] & 63, before);
	key = (kept[data[3] & 3] + data[1] * 97 + (odd & 1)) % 8192;
	entry = bpf_map_lookup_elem(&table, &key);
	if (!entry)
		return XDP_DROP;
	entry->word[data[3] & 15] += now + before;
	__sync_fetch_and_add(&entry->word[15], data[0]);
	return entry->word[15] & 1 ? XDP_PASS : XDP_TX;
}"#;

/// Engines that trust the program, as no others look ahead.
fn engine(linked: &Linked) -> Engine {
    Engine::new(linked, options(false, Backend::Cranelift)).unwrap()
}

fn packets() -> (Vec<u8>, Vec<PacketSpan>) {
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let buffer = (0..PACKETS * PACKET_BYTES).map(|_| random() as u8).collect();
    let spans = (0..PACKETS).map(|number| PacketSpan {
        start: number * PACKET_BYTES,
        metadata: 8 * (random() % 2),
        length: if random() % 10 == 0 { random() % 24 + 8 } else { PACKET_BYTES },
        time_ns: 1000 * number as u64,
        headroom: 0,
    });
    (buffer, spans.collect())
}

#[test]
fn batches_leave_what_packets_leave_one_by_one() {
    for cpu in ["v2", "v3"] {
        let object = compile(SOURCE, cpu);
        // SAFETY: a test below asks the kernel about it.
        let linked = unsafe { Linked::from_elf(&object).unwrap().assume_verified() };
        let (packets, spans) = packets();
        let (mut one_by_one, mut expected) = (packets.clone(), Vec::new());
        let mut alone = engine(&linked);
        let program = alone.program("test").unwrap();
        for span in &spans {
            alone.set_time(span.time_ns);
            let packet = &mut one_by_one[span.start..span.start + span.length];
            expected.push(alone.run_xdp(program, packet, span.metadata).unwrap());
        }
        for burst in [1, 5, 64, PACKETS] {
            let (mut buffer, mut codes) = (packets.clone(), Vec::new());
            let mut engine = engine(&linked);
            assert!(engine.looks_ahead(program));
            for spans in spans.chunks(burst) {
                engine.run_xdp_batch(program, &mut buffer, spans, &mut codes).unwrap();
            }
            assert!(codes == expected && buffer == one_by_one, "bursts of {burst}, -mcpu={cpu}");
            assert!(
                engine_maps(&engine, &linked) == engine_maps(&alone, &linked),
                "bursts of {burst}, -mcpu={cpu}"
            );
        }
    }
}

#[test]
fn the_kernel_accepts_what_is_trusted_here() {
    if crate::support::kernel() {
        crate::support::load(&compile(SOURCE, "v3"));
    }
}

/// A span outside the buffer is an error where it is its turn, and not while it is ahead.
#[test]
fn packets_ahead_may_be_wrong() {
    let object = compile(SOURCE, "v3");
    // SAFETY: as above.
    let linked = unsafe { Linked::from_elf(&object).unwrap().assume_verified() };
    let mut engine = engine(&linked);
    let program = engine.program("test").unwrap();
    let (mut buffer, mut spans) = packets();
    spans[3].start = buffer.len();
    spans[5].metadata = usize::MAX;
    let mut codes = Vec::new();
    let trap = engine.run_xdp_batch(program, &mut buffer, &spans, &mut codes).unwrap_err();
    assert_eq!((trap, codes.len()), (wirewise_engine::Trap::Packet, 3));
}

#[test]
fn what_fits_the_cache_or_is_caged_needs_no_look_ahead() {
    let small = SOURCE.replace("8192", "64");
    // SAFETY: as above.
    let small = unsafe { Linked::from_elf(&compile(&small, "v3")).unwrap().assume_verified() };
    let caged = Linked::from_elf(&compile(SOURCE, "v3")).unwrap();
    for (linked, caged) in [(small, false), (caged, true)] {
        let engine = Engine::new(&linked, options(caged, Backend::Cranelift)).unwrap();
        assert!(!engine.looks_ahead(engine.program("test").unwrap()));
    }
}
