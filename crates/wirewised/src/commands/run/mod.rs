// SPDX-License-Identifier: Apache-2.0
//! `wirewised run`.

mod several;
mod user_space;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

use crate::abi::{self, Mode};
use crate::attachment::args::keep_finding;
use crate::attachment::attach;
use crate::attachment::challenge;
use crate::attachment::companion;
use crate::attachment::detach::detach;
use crate::attachment::doctor;
use crate::attachment::doctor::finding::{self, Finding, Level};
use crate::attachment::doctor::memory;
use crate::attachment::followed;
use crate::attachment::forwarding;
use crate::attachment::lockout::{self, LockOutArgs};
use crate::attachment::outgoing;
use crate::attachment::pins::{Root, RootArgs};
use crate::attachment::plan::{self, AttachPlan, AttachRequest};
use crate::attachment::ready::{self, Prepared};
use crate::attachment::steering;
use crate::attachment::succession;
use crate::attachment::untried;
use crate::attachment::{Attachment, Whereabouts};
use crate::bundle::ready_model;
use crate::commands::trace::ModeArg;
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::kernel;
use crate::kernel::bpffs;
use crate::plane::user_space::{Options, Wanted};
use crate::plane::{Joining, Order, Plane};
use crate::policy::Policy;
use crate::reading::policy::will_enforce;
use crate::stop::Stop;
use crate::text::output;
use crate::text::shell::quoted;
use crate::text::units::{Nanoseconds, format_bytes};
use crate::trust::keys::TrustArgs;
use crate::views::status;
use crate::views::watch;

const EXAMPLES: &str = "\
Examples:
  wirewised run --bundle forest.wirewise --interface eth0 --dry-run
  wirewised run --bundle forest.wirewise --interface eth0
      watch only: every packet passes, `wirewised stats --watch` shows the classes
  wirewised run --bundle @flood --interface eth0
      the same with a ready model, which `wirewise` compiles
  wirewised run --bundle forest.wirewise --interface eth0 --policy policy.yaml
      still every packet passes; the counters say what the policy would have dropped
  wirewised run --bundle forest.wirewise --interface eth0 --policy policy.yaml --mode enforce --allow-current-session
      drop as the policy says; `enforce_for: 10m` in the policy ends that by itself
  wirewised run --bundle forest.wirewise --interface eth0,eth1 --share-flows
      on both interfaces of a router, or on neither; both directions of its traffic meet in one set of flow tables
  wirewised run --bundle forest.wirewise --interface eth0 --plane af-packet --to eth1 --policy policy.yaml
      in user space, as a wire between two interfaces, until Ctrl-C
In the kernel the program stays attached when this command ends, is killed or is upgraded; `wirewised detach` removes
it. Running again with the same bundle changes policy and mode in place, without a lost packet. A plane in user space
(`wirewised planes` lists them) runs for as long as this command does. Where no BPF file system is mounted at
/sys/fs/bpf, it mounts one and says so.";

/// Load a bundle, check everything, and attach it to an interface, or to several.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Bundle made by `wirewise compile`, or a ready model, such as @flood (`wirewise models` lists them)
    #[arg(long, visible_alias = "model", value_name = "FILE")]
    bundle: PathBuf,

    /// The interface whose packets are judged: incoming ones, with `--plane tc-egress` outgoing ones. With `--plane dpdk` also
    /// a card's PCI address, such as 0000:01:00.0, or a virtual device of DPDK's with its arguments. Several, all or none of which are
    /// attached: eth0,eth1 or eth*
    #[arg(long, value_name = "NAME")]
    interface: String,

    /// With several interfaces: one set of flow tables for all, so that both directions of a router's traffic meet
    #[arg(long)]
    share_flows: bool,

    /// Where in the kernel [default: xdp-native, or that of an adopted program]; there is no silent fallback
    #[arg(long, value_enum)]
    plane: Option<Plane>,

    /// Before or behind the programs of others: first or last at TC, or in a dispatcher of libxdp at XDP, where a number is the run
    /// priority, the smallest first; a number makes a dispatcher where there is none
    #[arg(long, value_name = "first|last|N", default_value = "first", value_parser = Order::parse)]
    order: Order,

    /// With a plane of TC, or a policy that has XDP need one: as a filter of clsact, as on kernels before 6.6, though this one has tcx links
    #[arg(long)]
    clsact: bool,

    /// Judge outgoing packets, too, at TC: both directions of a flow meet in one table
    #[arg(long)]
    outgoing: bool,

    #[command(flatten)]
    user_space: Options,

    /// What happens to packets [default: observe, or that of an adopted program]
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,

    /// Policy file [default: every class passes, or that of an adopted program]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    #[command(flatten)]
    lock_out: LockOutArgs,

    /// Replace another program, or another bundle
    #[arg(long)]
    replace: bool,

    /// Flow-table entries a CPU, a power of two [default: the bundle's]
    #[arg(long, value_name = "ENTRIES")]
    flow_table_size: Option<u32>,

    /// Not with --plane xdp-native: switch off what merges packets before the program, until it is detached
    #[arg(long, value_enum)]
    offloads: Option<Offloads>,

    /// Only check, and say what would be done
    #[arg(long)]
    dry_run: bool,

    /// Stay and show the counters, until q or Ctrl-C
    #[arg(long)]
    foreground: bool,

    /// Detach when leaving the foreground
    #[arg(long, requires = "foreground")]
    detach_on_exit: bool,

    /// Time between two views in the foreground
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "foreground")]
    interval: Nanoseconds,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    trust: TrustArgs,

    #[command(flatten)]
    root: RootArgs,
}

/// What happens to the offloads that merge packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Offloads {
    /// Switched off, and on again with `detach`
    Off,
}

/// What is to be attached to one interface, checked.
struct Checked {
    request: AttachRequest,
    plan: AttachPlan,
    prepared: Prepared,
    findings: Vec<Finding>,
    /// It may lock out whoever asks for it, who has not said yes to that.
    threatens: bool,
}

/// interface : as it was named.
fn checked(args: &Args, interface: &str) -> Result<Checked> {
    let mut request = read_inputs(args, interface)?;
    let steering = admit_steering(&mut request)?;
    let mut findings = check(&request, steering)?;
    let plan = plan::of(&request)?;
    let prepared = ready::prepare(&request)?;
    if !matches!(plan, AttachPlan::Adopt(_)) {
        let wanted = wanted(args, interface, &request, &prepared);
        findings.extend(check_memory(&wanted, &request, &prepared)?);
        finding::require(&findings)?;
    }
    let force = coming_into_force(&request, &plan)?;
    if let Some((mode, policy)) = &force {
        let taken = untried::taken(policy, &request.bundle.manifest.classes);
        untried::require(&request.bundle, *mode, &taken, plan.adopted(), &args.lock_out)?;
    }
    let threatens =
        !args.lock_out.yes && force.is_some_and(|(mode, policy)| lockout::threatens(mode, &policy));
    Ok(Checked { request, plan, prepared, findings, threatens })
}

/// What enforces already, or is to, by these options.
#[derive(Debug, clap::Parser)]
struct Again {
    #[command(flatten)]
    args: Args,
}

/// Whether what is attached may lock out whoever has it enforce, who has not said yes to that. The error is that of `run --mode enforce`.
pub fn threatens(ours: &Attachment, root: &Root, yes: bool) -> Result<bool> {
    let file = ours.meta.as_ref().map_or(Path::new(""), |meta| Path::new(&meta.bundle.file));
    if !file.is_file() {
        return Err(Error::input(format!(
            "{}: what runs is checked by its bundle, and {} is gone; put it back, or `wirewised swap --bundle FILE`",
            ours.interface,
            file.display()
        )));
    }
    let words: [&OsStr; 9] = [
        "run".as_ref(),
        "--bundle".as_ref(),
        file.as_ref(),
        "--interface".as_ref(),
        ours.interface.as_ref(),
        "--mode=enforce".as_ref(),
        "--pin-root".as_ref(),
        root.path().as_ref(),
        if yes { "--yes" } else { "--json" }.as_ref(),
    ];
    let again = Again::try_parse_from(words).map_err(|error| Error::input(error.to_string()))?;
    let checked = checked(&again.args, &ours.interface)?;
    finding::warn(&checked.findings);
    Ok(checked.threatens)
}

/// What a plane in user space is to carry.
fn wanted<'a>(
    args: &'a Args,
    interface: &'a str,
    request: &'a AttachRequest,
    prepared: &Prepared,
) -> Wanted<'a> {
    let arguments = request.plane.parts(interface).1;
    args.user_space.wanted(&request.interface, arguments, prepared.shards)
}

pub fn run(args: &Args) -> Result<()> {
    let names = several::names(args)?;
    match &names[..] {
        [interface] if args.share_flows => Err(Error::input(format!(
            "--share-flows needs several interfaces, and --interface means {interface} alone"
        ))),
        [interface] => run_on(args, interface),
        several => several::run(args, several),
    }
}

fn run_on(args: &Args, interface: &str) -> Result<()> {
    let Checked { request, plan, prepared, mut findings, threatens } = checked(args, interface)?;
    let wanted = wanted(args, interface, &request, &prepared);
    if threatens {
        if args.dry_run {
            findings.push(Finding::warning("lock-out", lockout::RISK.to_string(), lockout::WAYS_OUT));
        } else {
            lockout::confirm(args.json, lockout::WAYS_OUT)?;
        }
    }
    if args.dry_run {
        let told = tell(args, &request, &plan, &prepared, &findings)?;
        return told.map_or(Ok(()), |told| output::print_json(&told));
    }
    // Registered before anything is attached, so that no signal is lost in between.
    let stays = args.foreground || request.plane.carried().is_some();
    let stop = stays.then(Stop::on_signals).transpose()?;
    if !args.json {
        finding::warn(&findings);
        tell_memory(&plan, &prepared);
        output::check()?;
    }
    let mounts = bpffs::mount(request.root.path())?;
    if mounts {
        eprintln!("note: {}", bpffs::mounted_note());
    }
    let lock = request.root.lock()?;
    succession::tidy_all(&request.root)?;
    // Somebody may have attached since the first look.
    let plan = plan::of(&request)?;
    let action = done(&plan);
    let attachment = attach::execute(&request, plan, prepared)?;
    drop(lock);
    let (root, interface) = (request.root.clone(), attachment.interface.clone());
    let carrier = match &stop {
        Some(stop) => user_space::start(&wanted, &root, &attachment, request.plane, stop)?,
        None => None,
    };
    let told = report(args, action, mounts, &attachment, carrier.is_some())?;
    told.map_or(Ok(()), |told| output::print_json(&told))?;
    let Some(stop) = stop else { return Ok(()) };
    // The bundle is some MiB that only the start needed.
    drop((request, attachment));
    let watched = if args.foreground { watch_counters(args, &root, &interface, &stop) } else { Ok(()) };
    let Some(carrier) = carrier else {
        if args.foreground && args.detach_on_exit {
            detach(&root, &interface, false)?;
        }
        return watched;
    };
    if args.foreground {
        stop.ask();
    }
    user_space::end(carrier, &root, &interface).and(watched)
}

fn watch_counters(args: &Args, root: &Root, interface: &str, stop: &Stop) -> Result<()> {
    let find = keep_finding(root, &Attachment::find(root, Some(interface))?);
    let find = || match find()? {
        gone if gone.whereabouts == Whereabouts::Gone => Err(Error::other(format!(
            "{interface}: the interface was deleted, or the program was taken off it; `wirewised detach` removes what is left"
        ))),
        found => Ok(found),
    };
    let watched = watch::watch(find, Duration::from_nanos(args.interval.0), args.json, stop);
    // What was watched may have ended meanwhile.
    if stop.asked() { Ok(()) } else { watched }
}

fn read_inputs(args: &Args, interface: &str) -> Result<AttachRequest> {
    let bundle_file = ready_model::bundle_file(&args.bundle)?;
    let bundle = args.trust.read(&bundle_file)?;
    let policy = args
        .policy
        .as_ref()
        .map(|path| Policy::load(path, &bundle.manifest.classes).map(|policy| (path.clone(), policy)));
    let mut policy = policy.transpose()?;
    if let Some((_, policy)) = &mut policy {
        args.lock_out.admit(policy, args.json)?;
    }
    let root = args.root.root()?;
    let current = plan::current_plane(&root, &netdev::primary_name(interface));
    let plane = args.plane.or(current.map(|(plane, _)| plane)).unwrap_or(Plane::XDP_NATIVE);
    let interface = match plane.names_device(interface) {
        true => plane.parts(interface).0.to_string(),
        false => netdev::primary_name(interface),
    };
    let priority = plan::priority(plane, &interface, args.order, args.replace)?;
    let request = AttachRequest {
        plane,
        outgoing: args.outgoing || current.is_some_and(|(_, outgoing)| outgoing),
        interface,
        joining: Joining { order: args.order, clsact: args.clsact, priority },
        mode: args.mode.map(Mode::from),
        bundle,
        bundle_file,
        policy,
        replace: args.replace,
        table_size: args.flow_table_size,
        offloads_off: args.offloads == Some(Offloads::Off),
        root,
    };
    user_space::check(&args.user_space, &request)?;
    if request.outgoing {
        outgoing::check(request.plane)?;
    }
    let companion = companion::asked(request.plane, request.policy.as_ref().map(|(_, policy)| policy)) != 0;
    if args.clsact && !companion && !request.planes().any(Plane::is_of_tc) {
        return Err(Error::input(format!(
            "--clsact is for planes of TC, not for `--plane {}`",
            request.plane
        )));
    }
    if request.offloads_off && !request.planes().any(|plane| plane.abilities().sees_merged) {
        return Err(Error::input(format!(
            "--offloads off is not for `--plane {}`, which sees packets before anything merges them",
            request.plane
        )));
    }
    if request.offloads_off && request.plane.names_device(&request.interface) {
        return Err(Error::input(format!(
            "--offloads off is for interfaces, and {} is none: nothing is merged there",
            request.interface
        )));
    }
    Ok(request)
}

/// The mode and the policy that this command lets come into force; `None`: it changes neither.
fn coming_into_force(request: &AttachRequest, plan: &AttachPlan) -> Result<Option<(Mode, abi::Element)>> {
    let adopted = plan.adopted().map(Attachment::element).transpose()?;
    let current = adopted.as_ref().map(|policy| will_enforce(&policy.policy, kernel::boot_ns()));
    let mode = request.mode.or(current).unwrap_or(Mode::Observe);
    let policy = match &request.policy {
        Some((_, policy)) => Some(policy.to_abi(0, mode)),
        None => adopted.filter(|_| request.mode.is_some()),
    };
    Ok(policy.map(|policy| (mode, policy)))
}

/// Looks where the policy sends packets.
fn admit_steering(request: &mut AttachRequest) -> Result<Vec<Finding>> {
    let planes: Vec<_> = request.planes().collect();
    match &mut request.policy {
        Some((_, policy)) if policy.goes_beyond_verdicts() => {
            steering::admit(policy, &request.interface, &planes, &request.root)
        }
        _ => Ok(Vec::new()),
    }
}

/// The doctor's checks. Whether the interface is taken is for the plan, which knows about --replace.
fn check(request: &AttachRequest, steering: Vec<Finding>) -> Result<Vec<Finding>> {
    let mut findings = doctor::check_machine(&request.root);
    let flow = &request.bundle.manifest.flow;
    findings.extend(doctor::check_interface(&request.interface, request.plane, &request.root, Some(flow)));
    // Of where packets go, what the new policy says counts.
    findings.retain(|finding| {
        !["programs", steering::CHECK, forwarding::CHECK, followed::CHECK].contains(&finding.check)
    });
    if request.policy.is_some() {
        findings.retain(|finding| finding.check != challenge::CHECK);
    }
    findings.extend(steering);
    if request.outgoing {
        findings.extend(doctor::check_outgoing(&request.interface, flow));
    }
    for finding in findings.iter_mut().filter(|it| it.check == "offloads" && it.level == Level::Warning) {
        match (request.offloads_off, request.mode) {
            (true, _) => {
                finding.remedy = Some("`--offloads off` switches off those that can be seen".to_string())
            }
            (_, Some(Mode::Enforce)) => finding.level = Level::Error,
            _ => {}
        }
    }
    finding::require(&findings)?;
    if let Some((path, policy)) = &request.policy
        && request.mode == Some(Mode::Enforce)
        && policy.does_nothing()
    {
        findings.push(Finding::warning(
            "policy",
            format!("{} lets everything pass as it is, so enforce is like observe", path.display()),
            "give a class an action, such as drop",
        ));
    }
    findings.extend(check_after(request));
    Ok(findings)
}

fn check_memory(
    wanted: &Wanted<'_>,
    request: &AttachRequest,
    prepared: &Prepared,
) -> Result<Option<Finding>> {
    Ok(memory::check(&memory::Needs {
        tables: prepared.table_bytes + prepared.list_bytes,
        object: request.bundle.object.len() as u64,
        packets: user_space::footprint(wanted, request.plane)?,
    }))
}

/// Whether the policy acts sooner than the model was set for (`wirewise compile --max-benign-loss --after`).
fn check_after(request: &AttachRequest) -> Option<Finding> {
    let (path, policy) = request.policy.as_ref()?;
    let wanted = request.bundle.manifest.verdicts_in_a_row();
    let hasty = policy.acts_before(wanted);
    let first = hasty.first()?;
    Some(Finding::warning(
        "after",
        format!(
            "{} acts on {} after fewer verdicts in a row than the bundle was set for, {wanted}: more benign flows would lose packets",
            path.display(),
            hasty.join(", "),
        ),
        format!("`{first}: {{action: drop, after: {wanted}}}` in the policy"),
    ))
}

fn done(plan: &AttachPlan) -> &'static str {
    match plan {
        AttachPlan::Attach { displaced: None } => "attached",
        AttachPlan::Attach { displaced: Some(_) } | AttachPlan::Replace(_) | AttachPlan::Reattach(..) => {
            "replaced"
        }
        AttachPlan::Adopt(_) | AttachPlan::Reload(_) => "adopted",
    }
}

fn describe(plan: &AttachPlan, request: &AttachRequest) -> String {
    let interface = &request.interface;
    let plane = request.planes().map(Plane::name).collect::<Vec<_>>().join(" and ");
    let name = &request.bundle.manifest.name;
    match plan {
        AttachPlan::Attach { displaced: None } => format!("attach {name} to {interface} as {plane}"),
        AttachPlan::Attach { displaced: Some(other) } => {
            let other = doctor::describe_program(other.program_id);
            format!("take {other} off {interface}, then attach {name} as {plane}")
        }
        AttachPlan::Adopt(_) => format!("keep {name} attached to {interface} and set policy and mode"),
        AttachPlan::Reload(_) => {
            format!(
                "load {name} on {interface} again for what the policy asks for, and set policy and mode; flows go on"
            )
        }
        AttachPlan::Replace(_) => {
            format!("replace the program on {interface} by {name} in one step; flows start anew")
        }
        AttachPlan::Reattach(_, old) => {
            format!("detach the {old} program of {interface}, then attach {name} as {plane}")
        }
    }
}

/// Says what would be done: as JSON, which is returned, or as text.
fn tell(
    args: &Args,
    request: &AttachRequest,
    plan: &AttachPlan,
    prepared: &Prepared,
    findings: &[Finding],
) -> Result<Option<Value>> {
    let action = describe(plan, request);
    let mode = request.mode.map_or("observe, or as adopted", Mode::name);
    let mounts = bpffs::state(request.root.path()) == bpffs::State::Mountable;
    if args.json {
        return Ok(Some(json!({
            "dry_run": true, "interface": request.interface, "plane": request.plane, "mode": request.mode,
            "action": action, "bundle": request.bundle.manifest.name, "pins": plan::directory(request)?,
            "flow_tables": {
                "sharing": prepared.sharing, "entries": prepared.table_size, "cpus": prepared.shards, "bytes": prepared.table_bytes,
            },
            "mounts": mounts.then_some(bpffs::PLACE), "findings": findings,
        })));
    }
    finding::warn(findings);
    println!("would {action}");
    println!("  mode         {mode}");
    if let Some((_, policy)) = &request.policy {
        let actions =
            policy.classes.iter().zip(&policy.actions).map(|(class, action)| format!("{class}: {action}"));
        println!("  classes      {}", actions.collect::<Vec<_>>().join(", "));
    }
    tell_memory(plan, prepared);
    println!("  pins         {}", plan::directory(request)?.display());
    if mounts {
        println!("  mounts       a BPF file system at {}, where there is none yet", bpffs::PLACE);
    }
    println!("nothing was changed");
    Ok(None)
}

fn tell_memory(plan: &AttachPlan, prepared: &Prepared) {
    if matches!(plan, AttachPlan::Adopt(_) | AttachPlan::Reload(_)) {
        return;
    }
    let Prepared { sharing, table_size, shards, table_bytes, list_bytes, .. } = prepared;
    println!("  flow tables  {}, {}", sharing.describe(table_size, *shards), format_bytes(*table_bytes));
    if *list_bytes > 0 {
        println!("  kept out     {} for a deny list or bans", format_bytes(*list_bytes));
    }
}

/// Says what was done: as JSON, which is returned, or as text.
fn report(
    args: &Args,
    action: &str,
    mounts: bool,
    attachment: &Attachment,
    carries: bool,
) -> Result<Option<Value>> {
    let status = attachment.status()?;
    if args.json {
        if args.foreground {
            return Ok(None);
        }
        let mounts = mounts.then_some(bpffs::PLACE);
        return Ok(Some(json!({ "action": action, "mounts": mounts, "status": status })));
    }
    println!("{action}:");
    status::print(&status);
    if !args.foreground {
        let which = format!("--interface {}{}", quoted(&attachment.interface), args.root.again());
        let end = if carries { "Ctrl-C or " } else { "" };
        println!(
            "`wirewised stats {which} --watch` shows what it does, {end}`wirewised detach {which}` removes it"
        );
        output::check()?;
    }
    Ok(None)
}
