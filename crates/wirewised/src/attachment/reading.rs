// SPDX-License-Identifier: Apache-2.0
//! What can be read from an attachment's maps, by the readers of `reading/`.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::{MapCore, MapHandle};

use super::{Attachment, inside, names, pins, status};
use crate::abi::maps::{
    self, ACT_CPU, ACT_POLICY, AGREEMENT, BANS, CONFIG, Counted, EVENT_INPUTS, EVENTS, FLOWS4, PER_CPU,
    POLICY, Scope, VERDICTS, of_scopes,
};
use crate::abi::{self, Action, Mode};
use crate::bundle::Bundle;
use crate::bundle::manifest::Sharing;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::mapped::MappedArray;
use crate::object::{act_cpus, deny, policy_maps, read_element, value_of};
use crate::reading::agreement::Agreement;
use crate::reading::card::Card;
use crate::reading::counters::Counters;
use crate::reading::drift::{Compared, Drift, Live};
use crate::reading::event_ring::EventRing;
use crate::reading::events::Events;
use crate::reading::explanation::Explanation;
use crate::reading::flow_listing::ListedTable;
use crate::reading::flows::{Flows, Wanted};
use crate::reading::policy::{class_mode, effective_mode};
use crate::reading::pools::Pools;
use crate::reading::scores::Scores;
use crate::reading::statistics::{DeniedRow, MetadataCounters, Statistics};
use crate::reading::status::{AskedMode, Class, Status};
use crate::reading::tunnels::Tunnels;

impl Attachment {
    /// An open map that every program has.
    pub fn map(&self, name: &str) -> Result<MapHandle> {
        let pin = inside(&self.pins, name);
        MapHandle::from_pinned_path(&pin).map_err(|error| {
            let what = format!("{}/{name}", self.directory.display());
            // A pin that is not there, in a directory that has all of them or none.
            if pin.exists() {
                Error::other(format!("{what}: {error}"))
            } else {
                Error::other(format!("{what} is gone: {} was detached or replaced meanwhile", self.interface))
            }
        })
    }

    /// As `map`; `None`: the program does without one of this name.
    pub fn optional_map(&self, name: &str) -> Result<Option<MapHandle>> {
        if inside(&self.pins, name).exists() { self.map(name).map(Some) } else { Ok(None) }
    }

    pub fn status(&self) -> Result<Status> {
        status::of(self)
    }

    pub fn pools(&self) -> Result<Pools> {
        Pools::read(&self.interface, |name| self.optional_map(name))
    }

    pub fn tunnels(&self) -> Result<Tunnels> {
        Tunnels::read(&self.interface, |name| self.optional_map(name))
    }

    /// The constants the program was loaded with; `None` if an agent of another version did not keep them.
    pub fn config(&self) -> Result<Option<abi::Config>> {
        let map = self.optional_map(CONFIG)?;
        map.map(|map| read_element(&map, 0)).transpose()
    }

    /// What holds for each class, as the program reads it.
    pub fn policy(&self) -> Result<abi::Policy> {
        value_of(&self.map(POLICY)?)
    }

    /// The same, with what the actor does.
    pub fn element(&self) -> Result<abi::Element> {
        policy_maps::element_of(&self.map(POLICY)?, self.optional_map(ACT_POLICY)?.as_ref())
    }

    pub fn counters(&self) -> Result<Counters> {
        Counters::read(&self.map(PER_CPU)?)
    }

    /// Counters in words. before : an earlier reading, for rates.
    pub fn statistics(&self, now: &Counters, before: Option<&Counters>) -> Result<Statistics> {
        self.statistics_beside(&self.status()?, &self.element()?, now, before)
    }

    /// As `statistics`, where status and policy are known.
    pub fn statistics_beside(
        &self,
        status: &Status,
        policy: &abi::Element,
        now: &Counters,
        before: Option<&Counters>,
    ) -> Result<Statistics> {
        let networks = self.meta.as_ref().map_or(&[][..], |meta| &meta.networks);
        let statistics = Statistics::new(status, now, before, networks);
        Ok(Statistics {
            metadata: self.metadata_counters(policy)?,
            denied: self.denied_by(policy)?,
            ..statistics
        })
    }

    fn denied_by(&self, policy: &abi::Element) -> Result<Vec<DeniedRow>> {
        if !policy.denies() {
            return Ok(Vec::new());
        }
        let maps = deny::Maps::open(|name| self.optional_map(name).ok().flatten());
        let rows = maps.map_or(Ok(Vec::new()), |maps| maps.kept_out())?;
        Ok(rows.into_iter().map(|(origin, packets)| DeniedRow { origin, packets }).collect())
    }

    /// Packets with and without room for their verdict in front; `None`: the policy has no `metadata`.
    fn metadata_counters(&self, policy: &abi::Element) -> Result<Option<MetadataCounters>> {
        if policy.act.metadata == 0 {
            return Ok(None);
        }
        let Some(map) = self.optional_map(ACT_CPU)? else { return Ok(None) };
        let mut sum = MetadataCounters::default();
        for cpu in act_cpus(&map)? {
            sum.written += cpu.described;
            sum.no_room += cpu.undescribed;
        }
        Ok(Some(sum))
    }

    /// The flows it keeps.
    pub fn flows(&self, wanted: &Wanted) -> Result<Flows> {
        let verdict = self.config()?.map_or(abi::SLOT_VERDICT, |config| config.verdict as u8);
        let (sharing, shards) = (self.sharing()?, self.shards()?);
        let layout = self.meta.as_ref().map(|meta| &meta.flow);
        let mut tables = Vec::new();
        for (ip_version, name) in maps::tables(Counted::Flow) {
            if let Some(map) = self.optional_map(name)? {
                tables.push(ListedTable::new(ip_version, map, layout, sharing, shards));
            }
        }
        Flows::new(tables, verdict, self.class_names(), wanted)
    }

    /// The scores that its flows got; `None`: the policy does not keep them (`verdicts`).
    pub fn scores(&self) -> Result<Option<Scores>> {
        if self.element()?.act.verdicts == 0 {
            return Ok(None);
        }
        Ok(self.optional_map(VERDICTS)?.map(Scores::new))
    }

    /// How far its flows are from those that its model learned from.
    pub fn drift(&self) -> Result<Drift> {
        let meta = self.meta.as_ref();
        let known = meta.and_then(|meta| Some((meta.reference.as_ref()?, meta.flow.features.as_slice())));
        let mut compared = None;
        if let Some((reference, features)) = known {
            let mut live = Live::new(reference, features);
            self.flows(&Wanted::default())?.each(|found| {
                live.add(found.flow);
                Ok(())
            })?;
            compared = Some(live.compare(&self.counters()?.stats, &self.class_names()));
        }
        Ok(Drift {
            interface: self.interface.clone(),
            bundle: meta.map(|meta| meta.bundle.name.clone()),
            verdict: compared.as_ref().and_then(Compared::verdict),
            compared,
        })
    }

    /// Packets of classes that do not simply pass: those that are kept come first.
    pub fn events(&self) -> Result<Events> {
        let inputs = self.optional_map(EVENT_INPUTS)?;
        let ring = EventRing::open(&self.map(PER_CPU)?, &self.map(EVENTS)?, inputs.as_ref())?;
        let networks = self.meta.as_ref().map(|meta| meta.networks.clone()).unwrap_or_default();
        let inputs = self.meta.as_ref().map(|meta| meta.inputs.clone()).unwrap_or_default();
        let events = Events::new(
            ring,
            (self.map(POLICY)?, self.optional_map(ACT_POLICY)?),
            &self.interface,
            |class_id| self.class_name(class_id),
            networks,
        );
        Ok(events.with_inputs(inputs).with_bans(self.optional_map(BANS)?))
    }

    /// The bundle that runs, from its file.
    fn bundle(&self) -> Result<Bundle> {
        let Some(meta) = &self.meta else {
            return Err(Error::other(format!("{}: nobody remembers which bundle runs", self.interface)));
        };
        let bundle = Bundle::read(Path::new(&meta.bundle.file))?;
        if bundle.digest != meta.bundle.digest {
            return Err(Error::other(format!(
                "{}: holds another bundle than the one that runs on {}; put that back, or `wirewised swap` to this one",
                meta.bundle.file, self.interface
            )));
        }
        Ok(bundle)
    }

    /// Why its model gives the class it gives. features : of an event, by name.
    pub fn explain(&self, features: &BTreeMap<String, i64>) -> Result<Explanation> {
        let bundle = self.bundle()?;
        let inputs = self.meta.as_ref().map_or(&[][..], |meta| &meta.inputs);
        Explanation::new(&bundle, inputs, features).map_err(Error::input)
    }

    /// What is known of its model.
    pub fn card(&self) -> Result<Card> {
        Ok(Card::new(&self.interface, &self.bundle()?, self.classes()?))
    }

    /// How far the second model agrees; `None`: there is none.
    pub fn agreement(&self) -> Result<Option<Agreement>> {
        let Some(second) = self.shadow() else { return Ok(None) };
        let (first, shadow) = (|id| self.class_name(id), |id| second.class_name(id));
        Agreement::read(&second.map(AGREEMENT)?, second.meta.as_ref(), first, shadow).map(Some)
    }

    /// Bytes of the tables of flows and of what is kept beside them.
    pub fn flow_table_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for name in of_scopes(|scope| scope == Scope::Table) {
            if let Some(map) = self.optional_map(name)? {
                bytes += u64::from(map.max_entries()) * u64::from(map.value_size());
            }
        }
        Ok(bytes)
    }

    /// Interfaces under the same root whose programs use the same flow tables, in order.
    pub fn shares_flows_with(&self) -> Vec<String> {
        let Some(own) = self.flow_table_id() else { return Vec::new() };
        let directories = self.directory.parent().and_then(|root| std::fs::read_dir(root).ok());
        let others = directories.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        // What ran before a swap, and a shadow, lie beside an interface's own directory.
        let of_interfaces = others
            .filter(|place| *place != self.directory && !place.to_string_lossy().contains(names::BESIDE));
        let sharing = of_interfaces.filter(|place| {
            MapHandle::from_pinned_path(place.join(FLOWS4)).ok().and_then(|map| id_of(&map)) == Some(own)
        });
        let mut interfaces: Vec<_> = sharing.map(|place| pins::interface_of(&place)).collect();
        interfaces.sort();
        interfaces
    }

    /// The same for those that use the same flow tables.
    pub fn flow_table_id(&self) -> Option<u32> {
        self.map(FLOWS4).ok().and_then(|map| id_of(&map))
    }

    /// Whether all CPUs share the flow tables.
    pub fn sharing(&self) -> Result<Sharing> {
        let shared = self.config()?.is_some_and(|config| config.shared != 0);
        Ok(if shared { Sharing::Shared } else { Sharing::PerCpu })
    }

    /// CPUs that packets are counted of.
    pub fn shards(&self) -> Result<u32> {
        Ok(MappedArray::per_cpu(&self.map(PER_CPU)?)?.entries())
    }

    /// The name of a class, or its number if nobody remembers it.
    pub fn class_name(&self, class_id: u8) -> String {
        let known = self.meta.as_ref().and_then(|meta| meta.class_name(class_id));
        known.map_or_else(|| format!("class {class_id}"), str::to_string)
    }

    /// The index is the class id.
    pub fn class_names(&self) -> Vec<String> {
        let classes = self.meta.as_ref().map_or(abi::MAX_CLASSES, |meta| meta.classes.len());
        (0..classes).map(|id| self.class_name(id as u8)).collect()
    }

    /// Each class with what the policy asks for it.
    pub fn classes(&self) -> Result<Vec<Class>> {
        let policy = self.policy()?;
        let written = self.meta.as_ref().map(|meta| &meta.policy.actions);
        let action = |class_id: usize| match written.and_then(|actions| actions.get(class_id)) {
            Some(action) => action.clone(),
            None => match Action::from_code(policy.class_policy[class_id].action) {
                Some(action) => action.name().to_string(),
                None => "unknown".to_string(),
            },
        };
        let names = self.class_names().into_iter().enumerate();
        let now = kernel::boot_ns();
        let whole = effective_mode(&policy, now);
        let class = |(id, name): (usize, String)| {
            let rule = &policy.class_policy[id];
            let mode = if whole == Mode::Observe { whole } else { class_mode(rule, now).mode };
            Class { name, action: action(id), mode, asked: AskedMode::of(rule, now) }
        };
        Ok(names.map(class).collect())
    }
}

fn id_of(map: &MapHandle) -> Option<u32> {
    map.info().ok().map(|info| info.info.id)
}
