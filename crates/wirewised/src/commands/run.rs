// SPDX-License-Identifier: Apache-2.0
//! `wirewised run`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::abi::Mode;
use crate::attach::{self, Plan, Prepared, Request};
use crate::attachment::Attachment;
use crate::bpffs;
use crate::commands::detach;
use crate::commands::trace::ModeArg;
use crate::doctor::{self, Finding, Level};
use crate::error::{Error, Result};
use crate::input;
use crate::kernel;
use crate::keys::TrustArgs;
use crate::lockout::{self, Session};
use crate::netdev;
use crate::output;
use crate::pins::RootArgs;
use crate::policy::Policy;
use crate::status;
use crate::succession;
use crate::units::{Nanoseconds, format_bytes};
use crate::watch::{self, Stop};
use crate::xdp::Plane;

const EXAMPLES: &str = "\
Examples:
  wirewised run --bundle forest.wirewise --interface eth0 --dry-run
  wirewised run --bundle forest.wirewise --interface eth0
      watch only: every packet passes, `wirewised stats --watch` shows the classes
  wirewised run --bundle forest.wirewise --interface eth0 --policy policy.yaml
      still every packet passes; the counters say what the policy would have dropped
  wirewised run --bundle forest.wirewise --interface eth0 --policy policy.yaml --mode enforce --allow-current-session
      drop as the policy says; `enforce_for: 10m` in the policy ends that by itself
The program stays attached when this command ends, is killed or is upgraded; `wirewised detach` removes it. Running
again with the same bundle changes policy and mode in place, without a lost packet. Where no BPF file system is mounted
at /sys/fs/bpf, it mounts one and says so.";

/// Load a bundle, check everything, and attach it to an interface.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Bundle made by `wirewise compile`
    #[arg(long, value_name = "FILE")]
    bundle: PathBuf,

    /// The interface whose incoming packets are judged
    #[arg(long, value_name = "NAME")]
    interface: String,

    /// Where in the kernel [default: xdp-native, or that of an adopted program]; there is no silent fallback
    #[arg(long, value_enum)]
    plane: Option<Plane>,

    /// What happens to packets [default: observe, or that of an adopted program]
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,

    /// Policy file [default: every class passes, or that of an adopted program]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Enforce although the policy allows nobody: do not ask, do not refuse
    #[arg(long)]
    yes: bool,

    /// Put the address from which you are logged in over SSH on the policy's allow list
    #[arg(long, requires = "policy")]
    allow_current_session: bool,

    /// Take the place of another program, or of another bundle
    #[arg(long)]
    replace: bool,

    /// Flow-table entries a CPU, a power of two [default: the bundle's]
    #[arg(long, value_name = "ENTRIES")]
    flow_table_size: Option<u32>,

    /// With --plane xdp-generic: switch off what merges packets before the program, until it is detached
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

pub fn run(args: &Args) -> Result<()> {
    let request = read_inputs(args)?;
    let mut findings = check(&request)?;
    let plan = attach::plan(&request)?;
    let prepared = attach::prepare(&request)?;
    if !args.yes && risks_lock_out(&request, &plan)? {
        if args.dry_run {
            findings.push(Finding::warning("lock-out", lockout::RISK.to_string(), lockout::WAYS_OUT));
        } else {
            lockout::confirm(args.json)?;
        }
    }
    if args.dry_run {
        return tell(args, &request, &plan, &prepared, &findings);
    }
    // Registered before anything is attached, so that no signal is lost in between.
    let stop = args.foreground.then(Stop::on_signals).transpose()?;
    if !args.json {
        tell_warnings(&findings);
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
    let plan = attach::plan(&request)?;
    let action = done(&plan);
    let attachment = attach::execute(&request, plan, prepared)?;
    drop(lock);
    report(args, action, mounts, &attachment)?;
    let Some(stop) = stop else { return Ok(()) };
    // The bundle is some MiB that only the start needed.
    let (root, interface) = (request.root.clone(), attachment.interface.clone());
    drop((request, attachment));
    let watched = watch::watch(&root, &interface, Duration::from_nanos(args.interval.0), args.json, &stop);
    if args.detach_on_exit {
        detach::detach(&root, &interface, false)?;
    }
    watched
}

fn read_inputs(args: &Args) -> Result<Request> {
    let bundle = args.trust.read(&args.bundle)?;
    let policy = args
        .policy
        .as_ref()
        .map(|path| Policy::load(path, &bundle.manifest.classes).map(|policy| (path.clone(), policy)));
    let mut policy = policy.transpose()?;
    if let Some((_, policy)) = policy.as_mut().filter(|_| args.allow_current_session) {
        let session = Session::find()?;
        if !args.json {
            println!(
                "  allowed      {}, where you are logged in from ({})",
                session.address, session.told_by
            );
        }
        policy.prefixes.insert(session.prefix());
    }
    let root = args.root.root()?;
    let interface = netdev::primary_name(&args.interface);
    let request = Request {
        plane: args.plane.or_else(|| attach::current_plane(&root, &interface)).unwrap_or(Plane::XdpNative),
        interface,
        mode: args.mode.map(Mode::from),
        bundle,
        bundle_file: args.bundle.clone(),
        policy,
        replace: args.replace,
        table_size: args.flow_table_size,
        offloads_off: args.offloads == Some(Offloads::Off),
        root,
    };
    if request.offloads_off && request.plane == Plane::XdpNative {
        return Err(Error::input(
            "--offloads off is for `--plane xdp-generic`: native XDP is before what merges packets",
        ));
    }
    Ok(request)
}

/// Whether what is asked for would drop packets, and nobody is sure to get through.
fn risks_lock_out(request: &Request, plan: &Plan) -> Result<bool> {
    let adopted = if let Plan::Adopt(ours) = plan { Some(ours.policy()?) } else { None };
    let current = adopted.as_ref().map(|policy| attach::effective_mode(policy, kernel::boot_ns()));
    let mode = request.mode.or(current).unwrap_or(Mode::Observe);
    let policy = match &request.policy {
        Some((_, policy)) => Some(policy.to_abi(0, mode)),
        None => adopted.filter(|_| request.mode.is_some()),
    };
    Ok(mode == Mode::Enforce && policy.is_some_and(|policy| lockout::is_possible(&policy)))
}

/// The doctor's checks. Whether the interface is taken is for the plan, which knows about --replace.
fn check(request: &Request) -> Result<Vec<Finding>> {
    let mut findings = doctor::check_machine(&request.root);
    let flow = &request.bundle.manifest.flow;
    findings.extend(doctor::check_interface(&request.interface, request.plane, &request.root, Some(flow)));
    findings.retain(|finding| finding.check != "programs");
    for finding in findings.iter_mut().filter(|it| it.check == "offloads" && it.level == Level::Warning) {
        match (request.offloads_off, request.mode) {
            (true, _) => {
                finding.remedy = Some("`--offloads off` switches off those that can be seen".to_string())
            }
            (_, Some(Mode::Enforce)) => finding.level = Level::Error,
            _ => {}
        }
    }
    doctor::require(&findings)?;
    if let Some((path, policy)) = &request.policy
        && request.mode == Some(Mode::Enforce)
        && policy.drops_nothing()
    {
        findings.push(Finding::warning(
            "policy",
            format!("{} drops nothing, so enforce is like observe", path.display()),
            "give a class the action drop or rate-limit",
        ));
    }
    Ok(findings)
}

fn done(plan: &Plan) -> &'static str {
    match plan {
        Plan::Attach { displaced: None } => "attached",
        Plan::Attach { displaced: Some(_) } | Plan::Replace(_) | Plan::Reattach(..) => "replaced",
        Plan::Adopt(_) => "adopted",
    }
}

fn describe(plan: &Plan, request: &Request) -> String {
    let (interface, plane) = (&request.interface, request.plane);
    let name = &request.bundle.manifest.name;
    match plan {
        Plan::Attach { displaced: None } => format!("attach {name} to {interface} as {plane}"),
        Plan::Attach { displaced: Some(other) } => {
            let other = doctor::describe_program(other.program_id);
            format!("take {other} off {interface}, then attach {name} as {plane}")
        }
        Plan::Adopt(_) => format!("keep {name} attached to {interface} and set policy and mode"),
        Plan::Replace(_) => {
            format!("replace the program on {interface} by {name} in one step; flows start anew")
        }
        Plan::Reattach(_, old) => {
            format!("detach the {old} program of {interface}, then attach {name} as {plane}")
        }
    }
}

fn tell(
    args: &Args,
    request: &Request,
    plan: &Plan,
    prepared: &Prepared,
    findings: &[Finding],
) -> Result<()> {
    let action = describe(plan, request);
    let mode = request.mode.map_or("observe, or as adopted", Mode::name);
    let mounts = bpffs::state(request.root.path()) == bpffs::State::Mountable;
    if args.json {
        return input::print_json(&json!({
            "dry_run": true, "interface": request.interface, "plane": request.plane, "mode": request.mode,
            "action": action, "bundle": request.bundle.manifest.name, "pins": attach::directory(request)?,
            "flow_tables": {
                "sharing": prepared.sharing, "entries": prepared.table_size, "cpus": prepared.shards, "bytes": prepared.table_bytes,
            },
            "mounts": mounts.then_some(bpffs::PLACE), "findings": findings,
        }));
    }
    tell_warnings(findings);
    println!("would {action}");
    println!("  mode         {mode}");
    if let Some((_, policy)) = &request.policy {
        let actions =
            policy.classes.iter().zip(&policy.actions).map(|(class, action)| format!("{class}: {action}"));
        println!("  classes      {}", actions.collect::<Vec<_>>().join(", "));
    }
    tell_memory(plan, prepared);
    println!("  pins         {}", attach::directory(request)?.display());
    if mounts {
        println!("  mounts       a BPF file system at {}, where there is none yet", bpffs::PLACE);
    }
    println!("nothing was changed");
    Ok(())
}

fn tell_warnings(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.level == Level::Warning) {
        eprintln!(
            "warning: {}: {}; {}",
            finding.check,
            finding.found,
            finding.remedy.as_deref().unwrap_or_default()
        );
    }
}

fn tell_memory(plan: &Plan, prepared: &Prepared) {
    if matches!(plan, Plan::Adopt(_)) {
        return;
    }
    let Prepared { sharing, table_size, shards, table_bytes, .. } = prepared;
    println!("  flow tables  {}, {}", sharing.describe(table_size, *shards), format_bytes(*table_bytes));
}

fn report(args: &Args, action: &str, mounts: bool, attachment: &Attachment) -> Result<()> {
    let status = status::of(attachment)?;
    if args.json {
        if args.foreground {
            return Ok(());
        }
        return input::print_json(
            &json!({ "action": action, "mounts": mounts.then_some(bpffs::PLACE), "status": status }),
        );
    }
    println!("{action}:");
    status.print();
    if !args.foreground {
        let which = format!("--interface {}{}", attachment.interface, args.root.again());
        println!(
            "`wirewised stats {which} --watch` shows what it does, `wirewised detach {which}` removes it"
        );
    }
    Ok(())
}
