// SPDX-License-Identifier: Apache-2.0
//! The data path's clocks against the one of this process.

use std::thread::sleep;
use std::time::Duration;

use bytemuck::Zeroable;
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use wirewised::abi::{Clock, Policy, Slot};
use wirewised::kernel::{monotonic_ns, pin_to_one_cpu};
use wirewised::object::{Loaded, Opened, Settings, seed_from};

use crate::fixture::{data_path, udp};

const LATE_NS: i64 = 20_000_000;
/// The tick is measured from outside, and served a little early or late.
const EARLY_NS: i64 = 200_000;

fn load(object: &[u8], clock: Clock) -> Loaded {
    let cpu = pin_to_one_cpu().unwrap();
    let mut opened = Opened::open("x.bpf.o", object).unwrap();
    opened.prepare(&Settings { clock: Some(clock), ..Settings::on_cpu(cpu, seed_from(1)) }).unwrap();
    let loaded = opened.load().unwrap();
    let map = loaded.map("ww_policy").unwrap();
    map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(&Policy::zeroed()), MapFlags::ANY).unwrap();
    loaded
}

/// When the flow of a packet run now was last seen, as the data path tells it: ns behind this process's clock.
fn behind(loaded: &Loaded) -> i64 {
    let frame = udp(1, 100);
    let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
    loaded.entry().unwrap().test_run(input).unwrap();
    let now = monotonic_ns();
    let flows = loaded.map_array("ww_flows4").unwrap();
    let mut bucket = vec![0; flows.value_size()];
    let slots = (0..flows.entries()).flat_map(|index| {
        assert!(flows.read_part(index, 0, &mut bucket));
        let entries = bucket.chunks_exact(bucket.len() / 4);
        entries
            .map(|entry| bytemuck::pod_read_unaligned::<Slot>(&entry[..size_of::<Slot>()]))
            .collect::<Vec<_>>()
    });
    let used: Vec<_> = slots.filter(|slot| slot.packets > 0).collect();
    assert_eq!(used.len(), 1);
    now.wrapping_sub(used[0].last_seen_ns) as i64
}

#[test]
fn the_time_of_the_data_path_is_that_of_the_agent() {
    let Some(object) = data_path() else { return };
    for clock in [Clock::Coarse, Clock::Fine] {
        let loaded = load(&object, clock);
        let config = loaded.config.unwrap();
        // Between the packet and our look at the clock somebody else may have had the CPU: the best of some tries counts.
        let tries = (0..20).map(|_| {
            sleep(Duration::from_millis(3));
            behind(&loaded)
        });
        let tries: Vec<_> = tries.collect();
        let how = config.describe_clock();
        assert!(tries.iter().all(|behind| *behind >= -EARLY_NS), "{how} is ahead: {tries:?}");
        assert!(tries.iter().min().unwrap() < &LATE_NS, "{how} is behind: {tries:?}");
        eprintln!(
            "{how}: {} to {} us behind",
            tries.iter().min().unwrap() / 1000,
            tries.iter().max().unwrap() / 1000
        );
    }
}

#[test]
fn the_tick_is_measured_where_the_coarse_clock_is_used() {
    let Some(object) = data_path() else { return };
    let config = load(&object, Clock::Coarse).config.unwrap();
    if cfg!(target_arch = "x86_64") {
        assert!(
            [10_000_000, 4_000_000, 3_333_333, 1_000_000].contains(&config.jiffy_ns),
            "{}",
            config.jiffy_ns
        );
        assert_eq!(config.describe_clock(), "coarse (jiffies)");
    }
    let config = load(&object, Clock::Fine).config.unwrap();
    assert_eq!((config.jiffy_ns, config.jiffy_zero_ns, config.describe_clock()), (0, 0, "fine"));
}
