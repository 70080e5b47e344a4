// SPDX-License-Identifier: Apache-2.0
//! How far live flows are from training's, for people: a sentence, then the numbers behind it.

use crate::reading::drift::{Compared, Drift, FEWEST_FLOWS, FeatureDrift, Level, WATCH};
use crate::text::table;
use crate::text::units::thousands;
use crate::views::terminal;

pub fn print(drift: &Drift) {
    let bundle = drift.bundle.as_deref().unwrap_or("unknown bundle");
    terminal::print_wrapped(&format!("{}  {bundle} {}", drift.interface, sentence(drift)), 2);
    let Some(compared) = &drift.compared else { return };
    if compared.flows == 0 {
        return;
    }
    println!("{} live flows, {} of training", thousands(compared.flows), thousands(compared.training_flows));
    println!();
    let header = ["feature", "PSI", "by chance", "outside", "training's range"].map(str::to_string);
    table::print(&std::iter::once(header).chain(compared.features.iter().map(row)).collect::<Vec<_>>(), 1);
    if let Some(psi) = compared.classes_psi {
        println!();
        let header = ["packets of class", "live", "training"].map(str::to_string);
        let rows = compared.classes.iter();
        let rows = rows.map(|class| [class.name.clone(), percent(class.live), percent(class.training)]);
        table::print(&std::iter::once(header).chain(rows).collect::<Vec<_>>(), 1);
        println!(
            "The mix of classes has PSI {psi:.2}; it may be the traffic's, so it is no part of the verdict."
        );
    }
}

/// What follows the bundle's name.
pub fn sentence(drift: &Drift) -> String {
    let Some(compared) = &drift.compared else {
        return "does not say how its training looked: compile it again with --table TABLE, one that \
                `wirewise features` made"
            .to_string();
    };
    match drift.verdict {
        None if compared.features.is_empty() && compared.flows > 0 => {
            "reads no feature that a flow's state alone gives, so there is nothing to compare".to_string()
        }
        None => format!(
            "has {} live flows, too few for a verdict ({FEWEST_FLOWS}): look again later",
            compared.flows
        ),
        Some(Level::LikeTraining) => "looks like its training".to_string(),
        Some(Level::Watch) => format!("differs in {}: watch it", named(compared, Level::Watch)),
        Some(Level::OutOfDepth) => format!(
            "is out of its depth: {}. Observe only, and train it with captures of this network",
            named(compared, Level::OutOfDepth)
        ),
    }
}

fn named(compared: &Compared, level: Level) -> String {
    let features = compared.features.iter().filter(|feature| feature.level >= level);
    let told = features.map(|feature| {
        let outside = (feature.outside > WATCH)
            .then(|| format!(", {} of flows outside training's range", percent(feature.outside)));
        format!("{} (PSI {:.2}{})", feature.name, feature.psi, outside.unwrap_or_default())
    });
    told.collect::<Vec<_>>().join(", ")
}

fn row(feature: &FeatureDrift) -> [String; 5] {
    let range = format!("{} to {} {}", number(feature.low), number(feature.high), feature.unit);
    [
        feature.name.clone(),
        format!("{:.2}", feature.psi),
        format!("{:.2}", feature.chance),
        percent(feature.outside),
        range,
    ]
}

/// Whole numbers in full.
fn number(value: f64) -> String {
    if value >= 0.0 && value.fract() == 0.0 { thousands(value as u64) } else { format!("{value:.1}") }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}
