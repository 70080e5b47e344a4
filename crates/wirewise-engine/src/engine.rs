// SPDX-License-Identifier: Apache-2.0
//! One worker: its maps, its memory, and the native code of every program.

use std::cell::UnsafeCell;
use std::os::fd::BorrowedFd;

use crate::backend::{self, Code, Settings};
use crate::error::{Error, Trap};
use crate::frontend::ir::Program;
use crate::frontend::{self, Target};
use crate::ids::{MapId, ProgramId};
use crate::linked::{Linked, MapKind, MapSpec, Trust};
use crate::lookout::{Lookout, PacketSpan};
use crate::maps::{self, Map, MapMut, Store};
use crate::memory::{self, CAGED_MAPS_AT, CONTEXT_AT, Memory, PACKET_AT, PACKET_BYTES, STACK_AT};
use crate::options::{Backend, ClockSource, Options};
use crate::outlet::{Outlet, Output, Steered};
use crate::runtime::{self, Host, Vm};

/// `struct xdp_md` in the cage: its "pointers" are offsets there.
#[repr(C)]
struct CagedContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

pub(crate) type Entry = unsafe extern "C" fn(*mut u8, u64) -> u64;

/// One worker: its own maps, memory and stack. To run on several cores, make one engine for each.
#[derive(Debug)]
pub struct Engine {
    // Dropped before the memory and the maps that it uses.
    pub(crate) code: Code,
    host: Box<UnsafeCell<Host>>,
    memory: Memory,
    names: Vec<String>,
    pub(crate) caged: bool,
    fuel: i64,
    pub(crate) clock: ClockSource,
    pub(crate) lookout: Lookout,
    steered: Vec<Steered>,
}

// SAFETY: the pointer to `host` in the Vm is set at each run and used only during it; all else moves with the engine.
unsafe impl Send for Engine {}

impl Engine {
    /// Checks, translates and compiles every XDP program; programs of other types are left out.
    ///
    /// # Errors
    /// [`Error::Malformed`] and [`Error::Unsupported`] name program and instruction; [`Error::Map`] the map.
    pub fn new(linked: &Linked, options: Options) -> Result<Engine, Error> {
        Self::sharing(linked, options, &[])
    }

    /// As [`Engine::new`], on array maps that are there: in the kernel (`BPF_F_MMAPABLE`), or a memfd laid out alike. Engines on other
    /// processors, and other processes, may use them meanwhile, so atomic operations are the processor's own. Of `.rodata` the constants
    /// are those of `linked`, whatever the map holds.
    ///
    /// # Errors
    /// As [`Engine::new`]; [`Error::Map`] if a map is no array or cannot be mapped, [`Error::Options`] in the cage.
    pub fn sharing(
        linked: &Linked,
        options: Options,
        shared: &[(&str, BorrowedFd<'_>)],
    ) -> Result<Engine, Error> {
        let caged = caged(linked.trust(), &options)?;
        check_shared(linked, caged, &options, shared)?;
        let of = |map: &MapSpec| shared.iter().find(|(name, _)| *name == map.name()).map(|(_, map)| *map);
        let start = if caged { CAGED_MAPS_AT } else { 0 };
        let (places, end) = maps::lay_out(linked.maps(), start, caged, |map| of(map).is_some())?;
        let target = Target { maps: linked.maps(), places: &places, caged, cpu: options.cpu };
        let xdp = || linked.programs().iter().filter(|program| program.is_xdp());
        let programs: Vec<_> =
            xdp().map(|program| frontend::translate(program, target)).collect::<Result<_, _>>()?;
        let entries_nest = programs.iter().any(Program::enters_in_a_call);
        let packet_moves = programs.iter().any(Program::moves_packet);
        let settings =
            Settings { caged, shared: !shared.is_empty(), clock: options.clock, entries_nest, packet_moves };
        let code = backend::compile(options.backend, &programs, settings)?;
        let mut memory = Memory::new(end, caged)?;
        for (map, place) in linked.maps().iter().zip(&places) {
            if let Some(theirs) = of(map) {
                memory.map_over(place.offset, place.bytes, theirs).map_err(|error| Error::Map {
                    name: map.name().to_owned(),
                    why: format!("cannot be mapped: {error}"),
                })?;
            } else if let Some(initial) = map.initial() {
                memory.bytes_mut(place.offset, initial.len()).copy_from_slice(initial);
            }
        }
        let stores: Vec<Store> =
            linked.maps().iter().zip(places).map(|(map, place)| Store::new(map, place)).collect();
        let entries = code.entries.clone();
        let random = runtime::monotonic() | 1;
        let host = Host { stores, entries, end: memory.size(), caged, random, outlet: Outlet::default() };
        let host = Box::new(UnsafeCell::new(host));
        let names = xdp().map(|program| program.name.clone()).collect();
        let fuel = i64::try_from(options.fuel).unwrap_or(i64::MAX);
        Ok(Engine {
            code,
            host,
            memory,
            names,
            caged,
            fuel,
            clock: options.clock,
            lookout: Lookout::default(),
            steered: Vec::new(),
        })
    }

    /// A program by name.
    pub fn program(&self, name: &str) -> Option<ProgramId> {
        self.names.iter().position(|known| known == name).map(|index| ProgramId(index as u32))
    }

    /// The programs by name, in the object's order.
    pub fn programs(&self) -> impl Iterator<Item = (&str, ProgramId)> {
        self.names.iter().enumerate().map(|(index, name)| (name.as_str(), ProgramId(index as u32)))
    }

    /// Runs a program on a packet: `metadata` bytes, then the frame. Returns the XDP code.
    ///
    /// # Errors
    /// See [`Trap`].
    pub fn run_xdp(&mut self, program: ProgramId, packet: &mut [u8], metadata: usize) -> Result<u32, Trap> {
        let entry = self.begin(program)?;
        self.read_clock();
        let span = PacketSpan { metadata, length: packet.len(), ..PacketSpan::default() };
        self.vm().headroom = 0;
        if self.caged {
            self.run::<true>(entry, packet, (0, &span))
        } else {
            self.run::<false>(entry, packet, (0, &span))
        }
    }

    /// What the programs of the last run, or the last batch, moved or redirected, in the order of packets. What counts is the program's
    /// code: one that calls `bpf_redirect` may end with another.
    pub fn steered(&self) -> &[Steered] {
        &self.steered
    }

    /// What they wrote into arrays of perf events.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'_>> {
        self.host().outlet.outputs()
    }

    /// Tells programs that call `bpf_check_mtu` which interfaces there are: the MTU of an index. Without it there is none.
    pub fn set_interfaces(&mut self, mtu_of: impl FnMut(u32) -> Option<u32> + Send + 'static) {
        self.host.get_mut().outlet.interfaces = Some(Box::new(mtu_of));
    }

    #[inline(always)]
    pub(crate) fn vm(&mut self) -> &mut Vm {
        // SAFETY: our memory, and `self` is borrowed alone.
        unsafe { Vm::of(self.memory.base()) }
    }

    #[inline(always)]
    fn host(&self) -> &Host {
        // SAFETY: helpers change it only while native code runs, which is under `&mut self`.
        unsafe { &*self.host.get() }
    }

    pub(crate) fn begin(&mut self, program: ProgramId) -> Result<Entry, Trap> {
        let entry = *self.code.entries.get(program.0 as usize).ok_or(Trap::Program)?;
        let host = self.host.get();
        let context =
            if self.caged { CONTEXT_AT as u64 } else { self.memory.base().expose_provenance() as u64 };
        let vm = self.vm();
        vm.set_host(host);
        vm.context = context;
        self.steered.clear();
        self.host.get_mut().outlet.clear();
        // SAFETY: the back ends make entries of this signature.
        Ok(unsafe { std::mem::transmute::<usize, Entry>(entry) })
    }

    pub(crate) fn read_clock(&mut self) {
        if self.clock == ClockSource::PerBatch {
            self.vm().now = runtime::monotonic();
        }
    }

    #[inline(always)]
    pub(crate) fn run<const CAGED: bool>(
        &mut self,
        entry: Entry,
        packet: &mut [u8],
        (number, span): (usize, &PacketSpan),
    ) -> Result<u32, Trap> {
        let metadata = span.metadata;
        if metadata > packet.len() || (CAGED && packet.len() > PACKET_BYTES) {
            return Err(Trap::Packet);
        }
        if CAGED {
            self.lend_copy(packet, metadata);
        } else {
            self.lend(packet, metadata);
        }
        let mut code = self.call(entry) as u32;
        let left = self.vm().left_something();
        if left {
            code = self.finish(code);
            if !CAGED {
                self.note_steered(packet, (number, span));
            }
        }
        if CAGED {
            // SAFETY: as in `lend_copy`.
            unsafe { memory::copy(self.memory.base().add(PACKET_AT), packet.as_mut_ptr(), packet.len()) };
        }
        if left && let Some(trap) = self.take_trap() {
            return Err(trap);
        }
        Ok(code)
    }

    #[inline(always)]
    pub(crate) fn lend(&mut self, packet: &mut [u8], metadata: usize) {
        let start = packet.as_mut_ptr().expose_provenance() as u64;
        let length = packet.len() as u64;
        let vm = self.vm();
        vm.data_meta = start;
        vm.data = start + metadata as u64;
        vm.data_end = start + length;
        vm.tail_calls = 0;
    }

    /// In the cage the program gets a copy of the packet, and what it wrote is copied back.
    #[inline(always)]
    fn lend_copy(&mut self, packet: &[u8], metadata: usize) {
        // SAFETY: PACKET_BYTES of the memory are the packet's (the length was checked), and not the caller's.
        unsafe { memory::copy(packet.as_ptr(), self.memory.base().add(PACKET_AT), packet.len()) };
        // SAFETY: CONTEXT_AT is a place of its own in the cage, aligned to 8; any bytes are a context.
        let context = unsafe { &mut *self.memory.base().add(CONTEXT_AT).cast::<CagedContext>() };
        context.data = (PACKET_AT + metadata) as u32;
        context.data_end = (PACKET_AT + packet.len()) as u32;
        context.data_meta = PACKET_AT as u32;
        let fuel = self.fuel;
        let vm = self.vm();
        vm.fuel = fuel;
        vm.frame = STACK_AT as u64;
        vm.tail_calls = 0;
    }

    #[inline(always)]
    pub(crate) fn call(&mut self, entry: Entry) -> u64 {
        let (base, context) = (self.memory.base(), self.vm().context);
        // SAFETY: code of this engine with its own memory. Verified, it accesses what the verifier allows: its maps and stack, and
        // the packet, which the caller lends; caged, it cannot leave the cage.
        unsafe { entry(base, context) }
    }

    /// What a program left to do: tail calls under way, and maps to settle. A trap stays, for `take_trap`.
    #[cold]
    #[inline(never)]
    fn finish(&mut self, mut code: u32) -> u32 {
        while self.vm().trap == 0 && self.vm().pending != 0 {
            let next = std::mem::take(&mut self.vm().pending) as usize;
            // SAFETY: set by the helper, from the engine's own entries.
            code = self.call(unsafe { std::mem::transmute::<usize, Entry>(next) }) as u32;
        }
        let vm = self.vm();
        vm.pending = 0;
        if std::mem::take(&mut vm.unsettled) != 0 {
            // The packet has ended: nobody points at values that were freed.
            self.host.get_mut().stores.iter_mut().for_each(Store::settle);
        }
        code
    }

    #[cold]
    #[inline(never)]
    fn note_steered(&mut self, packet: &[u8], (number, span): (usize, &PacketSpan)) {
        let lent = (packet.as_ptr().addr() + span.metadata) as u64;
        let vm = self.vm();
        let (data, length) = (vm.data, (vm.data_end - vm.data) as usize);
        let interface = std::mem::take(&mut vm.redirect);
        if interface != 0 || data != lent {
            // Inside the buffer: as many bytes as there is room in front of the packet.
            let start = (span.start + span.metadata).wrapping_add_signed(data.wrapping_sub(lent) as isize);
            self.steered.push(Steered { packet: number, start, length, interface });
        }
    }

    fn take_trap(&mut self) -> Option<Trap> {
        match std::mem::take(&mut self.vm().trap) {
            0 => None,
            trap => Some(Trap::from_code(trap)),
        }
    }

    /// A map by name.
    pub fn map(&self, name: &str) -> Option<Map<'_>> {
        self.map_at(self.map_id(name)?)
    }

    /// The place of a map, for [`Engine::map_at`].
    pub fn map_id(&self, name: &str) -> Option<MapId> {
        self.host().stores.iter().position(|store| store.spec.name() == name).map(MapId)
    }

    /// A map of this engine by its place, which needs no search; `None` for one that only another engine has.
    #[inline]
    pub fn map_at(&self, id: MapId) -> Option<Map<'_>> {
        Some(Map { store: self.host().stores.get(id.0)?, memory: &self.memory })
    }

    /// A map by name, to change.
    pub fn map_mut(&mut self, name: &str) -> Option<MapMut<'_>> {
        let programs = self.names.len() as u32;
        let store = self.host.get_mut().stores.iter_mut().find(|store| store.spec.name() == name)?;
        Some(MapMut { store, memory: &mut self.memory, programs })
    }

    /// The time that programs see, in nanoseconds, with [`ClockSource::Manual`].
    pub fn set_time(&mut self, ns: u64) {
        self.vm().now = ns;
    }

    /// What programs read as `ingress_ifindex` and `rx_queue_index`.
    pub fn set_ingress(&mut self, ifindex: u32, queue: u32) {
        let vm = self.vm();
        vm.ingress_ifindex = ifindex;
        vm.rx_queue_index = queue;
        if self.caged {
            // SAFETY: as in `lend_copy`.
            let context = unsafe { &mut *self.memory.base().add(CONTEXT_AT).cast::<CagedContext>() };
            context.ingress_ifindex = ifindex;
            context.rx_queue_index = queue;
        }
    }

    /// For the fuzzer, between packets: what no program may change is as the engine left it.
    #[cfg(feature = "fuzz")]
    pub fn assert_whole(&mut self) {
        self.memory.assert_whole();
        let host = self.host.get();
        let vm = self.vm();
        assert!(vm.is_at_rest(host, CONTEXT_AT as u64), "struct Vm was changed: {vm:?}");
    }

    /// Whether the programs run in the cage.
    pub fn is_caged(&self) -> bool {
        self.caged
    }
}

fn check_shared(
    linked: &Linked,
    caged: bool,
    options: &Options,
    shared: &[(&str, BorrowedFd<'_>)],
) -> Result<(), Error> {
    if !shared.is_empty() && (caged || options.backend != Backend::Cranelift) {
        return Err(Error::Options(
            "maps that others use too are for verified byte code and the back end Cranelift".into(),
        ));
    }
    for (name, _) in shared {
        let refuse = |why: &str| Error::Map { name: (*name).to_owned(), why: why.into() };
        match linked.map(name) {
            None => return Err(refuse("the object has no such map")),
            Some(map) if map.kind() != MapKind::Array => {
                return Err(refuse("only arrays can be shared with others"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn caged(trust: Trust, options: &Options) -> Result<bool, Error> {
    if options.cpu >= options.cpus {
        return Err(Error::Options(format!(
            "cpu {} of {} does not exist: cpus are numbered from 0",
            options.cpu, options.cpus
        )));
    }
    match (trust, options.caged) {
        (Trust::Unverified, Some(false)) => Err(Error::Options(
            "byte code that the kernel has not verified runs caged only: load the object with libbpf and use Linked::from_loaded, \
             or leave the cage on"
                .into(),
        )),
        (trust, caged) => Ok(caged.unwrap_or(trust == Trust::Unverified)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::*;
    use crate::insn::{self, Insn};
    use crate::linked::LinkedProgram;
    use crate::memory::PAGE;

    /// Adds 1 to the first word of the map `count`.
    fn counting(kind: MapKind) -> Linked {
        let insn = |code, dst, src, imm| Insn { code, dst, src, off: 0, imm };
        let insns = vec![
            insn(insn::LD_IMM64, 1, insn::PSEUDO_MAP_IDX_VALUE, 0),
            insn(0, 0, 0, 0),
            insn(0xb7, 2, 0, 1),
            insn(0xdb, 1, 2, 0),
            insn(0xb7, 0, 0, 2),
            insn(0x95, 0, 0, 0),
        ];
        let program = LinkedProgram { name: "count".into(), section: "xdp".into(), insns };
        let map = MapSpec::new("count", kind, 4, 8, 1).unwrap();
        // SAFETY: it only adds to a word of its map.
        unsafe { Linked::new(vec![program], vec![map]).unwrap().assume_verified() }
    }

    fn memory() -> OwnedFd {
        // SAFETY: the name is a C string; the descriptor is new.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
        std::fs::File::from(file.try_clone().unwrap()).set_len(PAGE as u64).unwrap();
        file
    }

    #[test]
    fn engines_on_one_map_lose_nothing_of_each_other() {
        const TIMES: u64 = 300_000;
        let (linked, memory) = (counting(MapKind::Array), memory());
        let run = || {
            let mut engine =
                Engine::sharing(&linked, Options::default(), &[("count", memory.as_fd())]).unwrap();
            let program = engine.program("count").unwrap();
            for _ in 0..TIMES {
                engine.run_xdp(program, &mut [0; 64], 0).unwrap();
            }
            let map = engine.map("count").unwrap();
            u64::from_ne_bytes(map.bytes().unwrap()[..8].try_into().unwrap())
        };
        let both = std::thread::scope(|scope| {
            let threads = [scope.spawn(run), scope.spawn(run)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(both.into_iter().max(), Some(2 * TIMES));
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let memory = memory();
        let open = |linked: &Linked, name: &str, caged| {
            let options = Options { caged, ..Options::default() };
            Engine::sharing(linked, options, &[(name, memory.as_fd())]).unwrap_err()
        };
        let linked = counting(MapKind::Array);
        assert!(matches!(open(&linked, "none", None), Error::Map { .. }));
        assert!(matches!(open(&counting(MapKind::PerCpuArray), "count", None), Error::Map { .. }));
        assert!(matches!(open(&linked, "count", Some(true)), Error::Options(_)));
    }
}
