// SPDX-License-Identifier: Apache-2.0
//! An object as in its file: no privilege is needed until it is loaded.

use std::borrow::Cow;
use std::time::Instant;

use libbpf_rs::{AsRawLibbpf, ErrorKind, MapCore, ObjectBuilder, OpenObject};

use crate::abi::maps::{CONFIG, Scope, find, variable};
use crate::abi::{self, MAX_TAIL_CALLS};
use crate::bundle::emitted::{ENTRY, tail_call_index, tail_call_name};
use crate::bundle::signature::sha256;
use crate::error::{Error, Result, shortage};
use crate::kernel;
use crate::kernel::jiffies;
use crate::kernel::libbpf_log;
use crate::object::link;
use crate::object::loaded::Loaded;
use crate::object::maps::{bytes_of_cpus, constants, max_entries};
use crate::object::settings::{Runs, Settings};
use crate::object::verifier::Refusal;

/// What libbpf calls the object in its messages, and the first part of the name of maps such as .bss.
const OBJECT_NAME: &str = "wirewise";
/// `BPF_JMP | BPF_CALL` with the number of bpf_tail_call, and `BPF_ALU64 | BPF_MOV | BPF_K`, which sets register 0 to 0.
const CALL: u32 = libbpf_sys::BPF_JMP | libbpf_sys::BPF_CALL;
const TAIL_CALL: i32 = libbpf_sys::BPF_FUNC_tail_call as i32;
const SET_R0: u8 = (libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K) as u8;
/// Whether other processors see this one's stores in the order they were made.
const STORES_IN_ORDER: bool = cfg!(any(target_arch = "x86_64", target_arch = "s390x"));
/// Entries a CPU: what a 32-bit map key can number, with room for 256 CPUs.
pub const MAX_TABLE_SIZE: u32 = 1 << 24;

/// An object as in its file. `input` names it in errors.
#[derive(Debug)]
pub struct Opened {
    input: String,
    /// As it was given, without an actor.
    bytes: Vec<u8>,
    object: OpenObject,
    config: Option<abi::Config>,
    in_dispatcher: bool,
}

impl Opened {
    pub fn open(input: &str, bytes: &[u8]) -> Result<Self> {
        let object = Self::parse(input, bytes)?;
        let config = read_config(input, &object)?;
        if !object.progs().any(|program| program.section() == "xdp") {
            return Err(Error::input(format!("{input}: holds no XDP program (no section \"xdp\")")));
        }
        Ok(Self { input: input.to_owned(), bytes: bytes.to_vec(), object, config, in_dispatcher: false })
    }

    fn parse(input: &str, bytes: &[u8]) -> Result<OpenObject> {
        let (object, warnings) =
            libbpf_log::collect(|| ObjectBuilder::default().name(OBJECT_NAME)?.open_memory(bytes));
        object.map_err(|error| {
            if let Some(shortage) = shortage(&format!("{error:#}")) {
                return Error::other(format!("{input}: cannot be opened: {shortage}"));
            }
            let reason = said(&warnings);
            Error::input(format!(
                "{input}: not an eBPF object ({reason}); give one made by `wirewise compile`"
            ))
        })
    }

    /// What it was read from, for people.
    pub fn input(&self) -> &str {
        &self.input
    }

    /// The compiled configuration; `None` in an object that is not a data path of ours.
    pub fn config(&self) -> Option<&abi::Config> {
        self.config.as_ref()
    }

    /// The constants of a load with these settings.
    pub fn configure(&self, settings: &Settings) -> Result<abi::Config> {
        let mut config = self.config.ok_or_else(|| no_data_path(&self.input))?;
        if let Some(size) = settings.table_size {
            config.bucket_mask = check_table_size(size)? / abi::WAYS - 1;
        }
        if let Some(clock) = settings.clock {
            config.clock = clock.code();
        }
        let hook = match settings.runs {
            Runs::InKernel(hook) => hook,
            Runs::InDispatcher | Runs::InUserSpace => abi::Hook::Xdp,
        };
        // User space has no jiffies.
        let ticks = config.clock == abi::Clock::Coarse.code() && settings.runs != Runs::InUserSpace;
        let jiffies = if ticks { jiffies::of_this_kernel() } else { None };
        (config.jiffy_ns, config.jiffy_zero_ns) = jiffies.map_or((0, 0), |j| (j.tick_ns, j.zero_ns));
        config.shards = settings.shards;
        // A row is what a trace leaves.
        config.trace = (settings.trace || settings.record > 0).into();
        config.record = settings.record;
        config.bench_flows = settings.bench_flows;
        config.bench_spoof = settings.bench_spoof.into();
        config.bench_packets = settings.bench_packets;
        config.hash_seed = settings.hash_seed;
        config.verdict = settings.verdict.into();
        config.shadow = settings.shadow.code();
        config.ordered = STORES_IN_ORDER.into();
        config.hook = hook.code();
        config.acts = settings.acts;
        config.denies = (settings.acts & abi::STEER_DENY != 0).into();
        config.inputs = (settings.acts & abi::STEER_INPUTS != 0).into();
        config.model = model(&self.bytes);
        let tells = settings.shadow != abi::Shadow::Second && settings.acts & abi::STEER_DESCRIBES != 0;
        config.describes = tells.into();
        config.next = settings.next.into();
        config.frags = settings.frags.into();
        Ok(config)
    }

    /// The object as it is loaded with these constants: with the actor if there are actions.
    pub fn object_for(&self, config: &abi::Config) -> Result<Cow<'_, [u8]>> {
        match config.acts {
            0 => Ok(Cow::Borrowed(&self.bytes)),
            _ => link::with_actor(&self.input, &self.bytes).map(Cow::Owned),
        }
    }

    /// Writes the settings into the object: constants, and sizes of maps.
    pub fn prepare(&mut self, settings: &Settings) -> Result<()> {
        self.prepare_with(settings, max_entries)
    }

    /// As `prepare`, for an object that the kernel only verifies: it need not find memory for the flow tables. Returns
    /// the constants.
    pub fn prepare_to_verify(&mut self, settings: &Settings) -> Result<abi::Config> {
        self.prepare_with(settings, |map, config| match max_entries(map, config)? {
            Some(_) if find(map).is_some_and(|map| map.scope == Scope::Table) => Ok(Some(1)),
            entries => Ok(entries),
        })?;
        self.config.ok_or_else(|| no_data_path(&self.input))
    }

    fn prepare_with(
        &mut self,
        settings: &Settings,
        entries_of: impl Fn(&str, &abi::Config) -> Result<Option<u32>>,
    ) -> Result<()> {
        if self.config.is_none() {
            return Ok(());
        }
        self.in_dispatcher = settings.runs == Runs::InDispatcher;
        self.apply(self.configure(settings)?, entries_of)
    }

    /// As `prepare`, for an object that is loaded once more, with these constants.
    pub fn prepare_as(&mut self, config: abi::Config) -> Result<()> {
        self.apply(config, max_entries)
    }

    fn apply(
        &mut self,
        config: abi::Config,
        entries_of: impl Fn(&str, &abi::Config) -> Result<Option<u32>>,
    ) -> Result<()> {
        self.config = Some(config);
        if config.acts != 0 {
            self.object = Self::parse(&self.input, &self.object_for(&config)?)?;
        }
        let is_needed = |name: &str| find(name).is_none_or(|map| map.need.is_met(&config));
        for mut map in self.object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let set = match entries_of(&name, &config)? {
                _ if let Some(bytes) = constants(&name, &config) => map.set_initial_value(&bytes),
                _ if let Some(bytes) = bytes_of_cpus(&name, &config) => map.set_value_size(bytes),
                Some(entries) => map.set_max_entries(entries),
                None => Ok(()),
            };
            let made = set.and_then(|()| map.set_autocreate(is_needed(&name)));
            made.map_err(|error| Error::input(format!("{}: map {name}: {error}", self.input)))?;
        }
        self.load_for(&config);
        let hands_over = config.shadow == abi::Shadow::Second.code() || config.next != 0;
        if hands_over { Ok(()) } else { self.forget_hand_over() }
    }

    /// The file says XDP; the kernel is to check the programs as those of the hook.
    fn load_for(&mut self, config: &abi::Config) {
        let at_xdp = config.hook == abi::Hook::Xdp.code();
        for mut program in self.object.progs_mut() {
            let frags = at_xdp && config.frags != 0 && !self.in_dispatcher;
            program.set_flags(if frags { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 });
            let program = program.as_libbpf_object().as_ptr();
            if at_xdp {
                if self.in_dispatcher {
                    // What a program may call must say the same of itself, and an extension says nothing: its dispatcher does.
                    // SAFETY: the program is one of the object and not loaded yet; the call stores a number.
                    unsafe { libbpf_sys::bpf_program__set_expected_attach_type(program, 0) };
                }
                continue;
            }
            // SAFETY: the program is one of the object and not loaded yet; the calls store a number each.
            unsafe {
                libbpf_sys::bpf_program__set_type(program, libbpf_sys::BPF_PROG_TYPE_SCHED_CLS);
                libbpf_sys::bpf_program__set_expected_attach_type(program, 0);
            }
        }
    }

    /// Programs of the model, of one that is split over tail calls.
    pub fn tail_calls(&self) -> u32 {
        let names = self.object.progs().map(|program| program.name().to_string_lossy().into_owned());
        names.filter_map(|name| tail_call_index(&name)).max().unwrap_or(0)
    }

    /// Refuses a model that takes all tail calls of a packet, of which the component of a dispatcher needs one.
    pub fn check_dispatched(&self) -> Result<()> {
        if !self.in_dispatcher || self.tail_calls() < MAX_TAIL_CALLS {
            return Ok(());
        }
        Err(Error::input(format!(
            "{}: takes all {MAX_TAIL_CALLS} tail calls that the kernel allows for a packet, and a dispatcher's component needs one; compile the \
             model smaller, or take `--plane tc-ingress`",
            self.input
        )))
    }

    /// Takes the tail calls of the end out of the programs that have no other. It is in code that the verifier drops, but the
    /// kernel looks for tail calls before, and then each call of a function costs more.
    fn forget_hand_over(&mut self) -> Result<()> {
        let last = self.tail_calls();
        let only = if last == 0 { ENTRY.to_string() } else { tail_call_name(last) };
        let Some(program) = self.object.progs_mut().find(|program| program.name() == only.as_str()) else {
            return Ok(());
        };
        let mut instructions = program.insns().to_vec();
        for instruction in &mut instructions {
            if u32::from(instruction.code) == CALL
                && instruction.src_reg() == 0
                && instruction.imm == TAIL_CALL
            {
                *instruction = libbpf_sys::bpf_insn { code: SET_R0, ..libbpf_sys::bpf_insn::default() };
            }
        }
        // SAFETY: the program is one of the object and not loaded yet; libbpf copies the instructions.
        let code = unsafe {
            libbpf_sys::bpf_program__set_insns(
                program.as_libbpf_object().as_ptr(),
                instructions.as_mut_ptr(),
                instructions.len() as _,
            )
        };
        if code == 0 {
            Ok(())
        } else {
            Err(Error::other(format!("{}: {only} cannot be changed", self.input)))
        }
    }

    /// Bytes that maps of these names will have, of those that are made. Comes after `prepare`.
    pub fn map_bytes(&self, names: &[&str]) -> u64 {
        let made =
            self.object.maps().filter(|map| map.autocreate() && names.iter().any(|name| map.name() == *name));
        made.map(|map| u64::from(map.value_size()) * u64::from(map.max_entries())).sum()
    }

    /// Lets the program use a map that is there instead of one of its own, with what it holds. No such map in the object:
    /// nothing happens. Comes after `prepare`.
    pub fn share(&mut self, name: &str, map: &impl MapCore) -> Result<()> {
        let Some(mut own) = self
            .object
            .maps_mut()
            .find(|own| own.autocreate() && variable(&own.name().to_string_lossy()) == name)
        else {
            return Ok(());
        };
        let wanted = (own.map_type(), own.key_size(), own.value_size(), own.max_entries());
        if wanted != (map.map_type(), map.key_size(), map.value_size(), map.max_entries()) {
            return Err(Error::input(format!(
                "{}: its map {name} has another layout than the one in use: it was compiled by another version of wirewise",
                self.input
            )));
        }
        own.reuse_fd(map.as_fd())
            .map_err(|error| Error::other(format!("{}: map {name}: {error}", self.input)))
    }

    /// Loads every program and map into the kernel; attaches nothing. A refusal of the verifier is an error.
    pub fn load(self) -> Result<Loaded> {
        let input = self.input.clone();
        self.try_load()?.map_err(|refusal| refusal.into_error(&input))
    }

    /// As `load`, with a refusal of the verifier as a value to show.
    pub fn try_load(self) -> Result<std::result::Result<Loaded, Refusal>> {
        kernel::require()?;
        let Self { input, object, config, .. } = self;
        let start = Instant::now();
        let (loaded, warnings) = libbpf_log::collect(|| object.load());
        let load_time = start.elapsed();
        let object = match loaded {
            Ok(object) => object,
            Err(error) => {
                return match Refusal::from_warnings(&warnings)? {
                    Some(refusal) => Ok(Err(refusal)),
                    None => Err(load_error(&input, &error, &warnings)),
                };
            }
        };
        let loaded = Loaded { object, load_time, config, outgoing: None, next: None };
        loaded.fill_tail_calls()?;
        Ok(Ok(loaded))
    }
}

/// Names a program's object in metadata: the first eight hexadecimal digits of its SHA-256, as a number.
pub fn model(object: &[u8]) -> u32 {
    let digest = sha256(object);
    u32::from_str_radix(&digest[..8], 16).unwrap_or(0)
}

pub fn no_data_path(input: &str) -> Error {
    Error::input(format!("{input}: its program is no data path of wirewise"))
}

fn read_config(input: &str, object: &OpenObject) -> Result<Option<abi::Config>> {
    let Some(map) = object.maps().find(|map| variable(&map.name().to_string_lossy()) == CONFIG) else {
        return Ok(None);
    };
    let config = map
        .initial_value()
        .and_then(|bytes| bytemuck::try_pod_read_unaligned::<abi::Config>(bytes).ok())
        .ok_or_else(|| {
            Error::input(format!("{input}: map {CONFIG} is not {} bytes", size_of::<abi::Config>()))
        })?;
    if config.abi_version != abi::ABI_VERSION {
        return Err(Error::input(format!(
            "{input}: made for version {} of the data path's interface, this agent speaks version {}: compile the \
             model again, or use the agent of the release that made it",
            config.abi_version,
            abi::ABI_VERSION
        )));
    }
    Ok(Some(config))
}

fn check_table_size(size: u32) -> Result<u32> {
    if size.is_power_of_two() && (abi::WAYS..=MAX_TABLE_SIZE).contains(&size) {
        return Ok(size);
    }
    Err(Error::input(format!(
        "a flow table of {size} entries a CPU is not possible: choose a power of two from {} to {MAX_TABLE_SIZE}",
        abi::WAYS
    )))
}

/// The last thing libbpf complained about.
fn said(warnings: &[String]) -> &str {
    warnings.last().map_or("no reason given", |warning| warning.trim_start_matches("libbpf: "))
}

fn load_error(input: &str, error: &libbpf_rs::Error, warnings: &[String]) -> Error {
    let said =
        warnings.iter().map(|warning| warning.trim_start_matches("libbpf: ")).next_back().unwrap_or("");
    match (error.kind(), shortage(&format!("{error:#}"))) {
        (ErrorKind::PermissionDenied, _) => Error::missing(format!(
            "{input}: the kernel does not let this process load programs, although it has the capabilities \
             (a user namespace, a seccomp filter or lockdown mode?): {said}"
        )),
        (ErrorKind::OutOfMemory | ErrorKind::TooBig, _) => {
            Error::other(format!("{input}: no memory for the maps; choose a smaller flow table: {said}"))
        }
        (_, Some(shortage)) => Error::other(format!("{input}: cannot be loaded: {shortage}")),
        _ => Error::other(format!("{input}: cannot be loaded: {error:#}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_sizes_are_powers_of_two_within_bounds() {
        for size in [4, 65_536, MAX_TABLE_SIZE] {
            assert_eq!(check_table_size(size), Ok(size));
        }
        for size in [0, 1, 2, 5, 65_537, MAX_TABLE_SIZE * 2] {
            assert!(check_table_size(size).is_err(), "{size}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_by_name() {
        for bytes in [&b""[..], b"\x7fELF", b"not an object at all"] {
            let error = Opened::open("x.bpf.o", bytes).unwrap_err();
            assert!(error.to_string().starts_with("x.bpf.o: not an eBPF object"), "{error}");
            assert_eq!(error.kind().exit_code(), 2);
        }
    }
}
