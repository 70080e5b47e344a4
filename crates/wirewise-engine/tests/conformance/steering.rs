// SPDX-License-Identifier: Apache-2.0
//! What programs do with packets beside writing on them: the kernel's answers, and what comes out of the engine.

use wirewise_engine::{Backend, Engine, Linked, Output, PacketSpan, Steered};

use crate::support::{
    Left, backends, compile, engine_maps, kernel, load, options, run_in_engine, run_in_kernel,
};

const SOURCE: &str = r#"
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32); }
	copies SEC(".maps");
/* Out of line, with the context of its caller. */
__noinline int grow(struct xdp_md *ctx, int bytes)
{
	return bpf_xdp_adjust_head(ctx, -bytes);
}
SEC("xdp") int test(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, wanted;
	__u64 length = end - data;
	__u32 mark = 7, mtu = 0, asked = 40, to;
	int bytes;

	if (data + 20 > end)
		return XDP_ABORTED;
	wanted = data[14];
	bytes = (data[15] & 1 ? -1 : 1) * data[16];
	to = data[17];
	if (wanted & 1)
		bpf_perf_event_output(ctx, &copies, length / 2 << 32 | BPF_F_CURRENT_CPU, &mark, sizeof(mark));
	put(0, bpf_check_mtu(ctx, 1, &mtu, 65500 - to, 0));
	put(1, mtu);
	put(2, bpf_check_mtu(ctx, 1, &asked, 70000, 0));
	put(3, bpf_check_mtu(ctx, 0x7fffffff, &mtu, 0, 0));
	put(4, bpf_check_mtu(ctx, 1, &mtu, 0, 77));
	data[0] = 1;
	if (wanted & 2) {
		put(5, grow(ctx, bytes));
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		if (data + 14 > end)
			return XDP_ABORTED;
		data[0] = 0xaa;
		data[13] = 0xbb;
		put(6, end - data);
	}
	if (wanted & 4)
		return bpf_redirect(to, 0);
	return wanted & 8 ? XDP_TX : XDP_PASS;
}"#;

/// As the kernel has in front of what it runs: 256 bytes, of which it keeps 40.
const HEADROOM: usize = 216;

fn packets() -> Vec<Vec<u8>> {
    let packet = |number: usize| {
        let mut packet: Vec<u8> = (0..60 + number % 9).map(|byte| (byte * 37 + number) as u8).collect();
        // Every wish, with lengths around the limits.
        let bytes = [1, 13, 45, 46, 47, 60, 200, 215, 216, 217, 255][number % 11];
        (packet[14], packet[15], packet[16], packet[17]) = (number as u8, (number / 11) as u8, bytes, 9);
        packet
    };
    (0..704).map(packet).collect()
}

fn linked(object: &[u8]) -> Linked {
    // SAFETY: the test below asks the kernel about it.
    unsafe { Linked::from_elf(object).unwrap().assume_verified() }
}

/// Of the interface that the kernel has for programs that are tried.
fn loopback(index: u32) -> Option<u32> {
    let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
    (index == 1).then(|| mtu.trim().parse().unwrap())
}

fn engine(linked: &Linked, backend: Backend) -> Engine {
    let mut engine = Engine::new(linked, options(false, backend)).unwrap();
    engine.set_interfaces(loopback);
    engine
}

#[test]
fn packets_grow_shrink_and_are_measured_as_in_the_kernel() {
    for cpu in ["v1", "v3"] {
        let object = compile(SOURCE, cpu);
        let linked = linked(&object);
        let expected = kernel().then(|| run_in_kernel(&load(&object), &packets()));
        for backend in backends() {
            let mut engine = engine(&linked, backend);
            let program = engine.program("test").unwrap();
            let mut all = Vec::new();
            for packet in packets() {
                let mut buffer = vec![0; HEADROOM];
                buffer.extend(&packet);
                let span = PacketSpan {
                    start: HEADROOM,
                    length: packet.len(),
                    headroom: HEADROOM,
                    ..PacketSpan::default()
                };
                let mut codes = Vec::new();
                engine.run_xdp_batch(program, &mut buffer, &[span], &mut codes).unwrap();
                let (start, length) =
                    engine.steered().first().map_or((span.start, span.length), |it| (it.start, it.length));
                let maps = engine_maps(&engine, &linked);
                all.push(Left { code: codes[0], packet: buffer[start..start + length].to_vec(), maps });
            }
            if let Some(expected) = &expected {
                for (number, (expected, left)) in expected.iter().zip(&all).enumerate() {
                    assert_eq!(expected, left, "{cpu} {backend:?} packet {number}");
                }
            }
        }
    }
}

#[test]
fn a_batch_tells_what_was_redirected_and_written() {
    let linked = linked(&compile(SOURCE, "v3"));
    let mut engine = engine(&linked, Backend::Cranelift);
    let program = engine.program("test").unwrap();
    let mut buffer = Vec::new();
    let mut spans = Vec::new();
    // Nothing; a copy; to an interface; both, and longer; no room.
    for (wanted, bytes, headroom) in [(0, 0, 64), (1, 0, 64), (4, 0, 64), (7, 20, 64), (2, 65, 64), (2, 1, 0)]
    {
        let mut packet = vec![wanted; 60];
        (packet[15], packet[16], packet[17]) = (0, bytes, 9);
        buffer.extend(vec![0; 64]);
        spans.push(PacketSpan { start: buffer.len(), length: 60, headroom, ..PacketSpan::default() });
        buffer.extend(packet);
    }
    let mut codes = Vec::new();
    engine.run_xdp_batch(program, &mut buffer, &spans, &mut codes).unwrap();
    assert_eq!(codes, [2, 2, 4, 4, 2, 2]);
    let at = |packet: usize| spans[packet].start;
    assert_eq!(
        engine.steered(),
        [
            Steered { packet: 2, start: at(2), length: 60, interface: 9 },
            Steered { packet: 3, start: at(3) - 20, length: 80, interface: 9 },
        ]
    );
    // As the packets were then: before the first byte was written.
    let outputs: Vec<_> = engine.outputs().collect();
    let copy = |wanted: u8, bytes: u8| {
        let mut packet = vec![wanted; 30];
        (packet[15], packet[16], packet[17]) = (0, bytes, 9);
        packet
    };
    let mark = 7u32.to_ne_bytes();
    assert_eq!(
        outputs,
        [Output { data: &mark, packet: &copy(1, 0) }, Output { data: &mark, packet: &copy(7, 20) }]
    );
    // A batch forgets those of the one before.
    engine.run_xdp_batch(program, &mut buffer, &spans[..1], &mut codes).unwrap();
    assert_eq!((engine.steered().len(), engine.outputs().count()), (0, 0));
}

/// In the cage nothing can be sent and nobody asked, and the packet stays where it is.
#[test]
fn in_the_cage_there_is_nowhere_to_go() {
    let linked = Linked::from_elf(&compile(SOURCE, "v3")).unwrap();
    for backend in backends() {
        for (before, left) in packets().iter().zip(run_in_engine(&linked, options(true, backend), &packets()))
        {
            let answer =
                |at: u32| i64::from_ne_bytes(left.maps["out"][&at.to_ne_bytes()[..]][..].try_into().unwrap());
            assert_eq!((left.packet.len(), answer(0), answer(4)), (before.len(), -19, -22));
            let code = match before[14] {
                wanted if wanted & 4 != 0 => 0,
                wanted if wanted & 8 != 0 => 3,
                _ => 2,
            };
            assert_eq!((left.code, before[14] & 2 == 0 || answer(5) == -22), (code, true));
        }
    }
}
