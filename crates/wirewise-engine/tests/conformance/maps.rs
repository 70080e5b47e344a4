// SPDX-License-Identifier: Apache-2.0
//! Maps that are more than arrays.

use std::cell::RefCell;

use libbpf_rs::{MapCore, RingBufferBuilder};
use wirewise_engine::{Engine, Linked, Options};

use crate::support::{compile, frame, kernel, load, run_in_kernel, same_everywhere, same_with_packets};

#[test]
fn hash_maps_and_prefixes() {
    same_everywhere(
        r#"
struct key { __u32 a; __u16 b; __u8 c; __u8 d; };
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 8); __type(key, struct key); __type(value, __u64); }
	table SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_LPM_TRIE); __uint(max_entries, 8); __uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(key_size, 8); __type(value, __u32); } trie SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 2); __type(key, __u32); __type(value, __u64); }
	own SEC(".maps");
SEC("xdp") int test(struct xdp_md *ctx)
{
	struct key key = {1, 2, 3, 4};
	struct { __u32 length; __u8 address[4]; } prefix = {8, {10, 0, 0, 0}};
	__u64 value = 5, *found, *mine;
	__u32 small = 9, index = ctx->rx_queue_index + 1, *leaf;
	put(0, !!bpf_map_lookup_elem(&table, &key));
	put(1, bpf_map_update_elem(&table, &key, &value, BPF_EXIST));
	put(2, bpf_map_update_elem(&table, &key, &value, BPF_NOEXIST));
	put(3, bpf_map_update_elem(&table, &key, &value, BPF_NOEXIST));
	found = bpf_map_lookup_elem(&table, &key);
	if (found)
		put(4, ++*found);
	for (int i = 0; i < 12; i++) {
		key.a = i;
		value = i * i;
		put(5 + i, bpf_map_update_elem(&table, &key, &value, BPF_ANY));
	}
	key.a = 3;
	put(17, bpf_map_delete_elem(&table, &key));
	put(18, bpf_map_delete_elem(&table, &key));
	put(19, bpf_map_update_elem(&trie, &prefix, &small, BPF_ANY));
	prefix.length = 25;
	prefix.address[3] = 0x80;
	small = 10;
	put(20, bpf_map_update_elem(&trie, &prefix, &small, BPF_ANY));
	prefix.length = 32;
	prefix.address[3] = 0x81;
	leaf = bpf_map_lookup_elem(&trie, &prefix);
	put(21, leaf ? *leaf : 0);
	prefix.address[3] = 0x01;
	leaf = bpf_map_lookup_elem(&trie, &prefix);
	put(22, leaf ? *leaf : 0);
	prefix.address[0] = 11;
	put(23, !!bpf_map_lookup_elem(&trie, &prefix));
	mine = bpf_map_lookup_elem(&own, &index);
	if (mine)
		put(24, ++*mine);
	value = 3;
	put(25, bpf_map_update_elem(&out, &index, &value, BPF_NOEXIST));
	index = 64;
	put(26, bpf_map_update_elem(&out, &index, &value, BPF_ANY));
	return XDP_PASS;
}"#,
    );
}

#[test]
fn ring_buffers_deliver_what_was_submitted() {
    let source = r#"
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");
struct record { __u64 number; __u8 rest[13]; };
SEC("xdp") int test(struct xdp_md *ctx)
{
	struct record here = {.number = 1};
	for (int i = 0; i < 40; i++) {
		struct record *record = bpf_ringbuf_reserve(&ring, sizeof(*record), 0);
		if (!record) {
			put(0, i);
			break;
		}
		__builtin_memset(record, i, sizeof(*record));
		record->number = i * 3;
		if (i % 5 == 4)
			bpf_ringbuf_discard(record, 0);
		else
			bpf_ringbuf_submit(record, 0);
	}
	put(1, bpf_ringbuf_output(&ring, &here, 13, 0));
	put(3, bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA));
	put(4, bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE));
	for (int i = 0; i < 100; i++)
		if (bpf_ringbuf_output(&ring, &here, 21, BPF_RB_NO_WAKEUP)) {
			put(5, i);
			break;
		}
	return XDP_PASS;
}"#;
    let packets = [frame()];
    same_with_packets(source, &packets);
    // What is delivered, from the kernel and from both kinds of engine.
    let object = compile(source, "v3");
    let code = Linked::from_elf(&object).unwrap();
    let records = || {
        let mut engine = Engine::new(&code, Options::default()).unwrap();
        let id = engine.program("test").unwrap();
        let mut all = Vec::new();
        // Drained between packets, so that the ring goes around.
        for _ in 0..5 {
            engine.run_xdp(id, &mut frame(), 0).unwrap();
            engine.map_mut("ring").unwrap().drain(|record| all.push(record.to_vec())).unwrap();
        }
        all
    };
    let ours = records();
    assert!(ours.len() > 300);
    if kernel() {
        let loaded = load(&object);
        let all = RefCell::new(Vec::new());
        {
            let map = loaded.maps().find(|map| map.name() == "ring").unwrap();
            let mut builder = RingBufferBuilder::new();
            let keep = |record: &[u8]| {
                all.borrow_mut().push(record.to_vec());
                0
            };
            builder.add(&map, keep).unwrap();
            let ring = builder.build().unwrap();
            for _ in 0..5 {
                run_in_kernel(&loaded, &packets);
                ring.consume().unwrap();
            }
        }
        assert_eq!(all.into_inner(), ours);
    }
}
