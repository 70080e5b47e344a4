// SPDX-License-Identifier: Apache-2.0
//! How many packets a second there were of each class, as far back as a wide terminal shows.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Sparkline};

use crate::reading::statistics::{ClassRow, Statistics};
use crate::text::units::format_count;

const KEPT: usize = 512;
/// Parts of a packet a second that a bar still tells apart.
const PARTS: f64 = 10.0;

#[derive(Debug, Default)]
pub struct History {
    /// By class, the latest last.
    rates: BTreeMap<String, VecDeque<f64>>,
}

impl History {
    pub fn add(&mut self, statistics: &Statistics) {
        self.rates.retain(|name, _| statistics.classes.iter().any(|class| class.name == *name));
        for class in &statistics.classes {
            let Some(rate) = class.packets_per_second else { continue };
            let rates = self.rates.entry(class.name.clone()).or_default();
            if rates.len() == KEPT {
                rates.pop_front();
            }
            rates.push_back(rate);
        }
    }

    /// Heights of bars, for the latest rates of a class, as many as there is room for.
    fn bars(&self, class: &str, room: usize) -> Vec<u64> {
        let Some(rates) = self.rates.get(class) else { return Vec::new() };
        rates
            .iter()
            .skip(rates.len().saturating_sub(room))
            .map(|rate| (rate * PARTS).round() as u64)
            .collect()
    }

    /// A line a class: name, how the rate went, what it is now.
    pub fn draw(&self, frame: &mut Frame<'_>, area: Rect, classes: &[&ClassRow]) {
        if area.is_empty() {
            return;
        }
        let block = Block::bordered().title("packet/s, a bar each look");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let number = |class: &ClassRow| class.packets_per_second.map_or("-".to_string(), format_count);
        let widest =
            |width: fn(&str) -> usize, texts: &[String]| texts.iter().map(|t| width(t)).max().unwrap_or(0);
        let characters: fn(&str) -> usize = |text| text.chars().count();
        let numbers: Vec<_> = classes.iter().map(|class| number(class)).collect();
        let names: Vec<_> = classes.iter().map(|class| class.name.clone()).collect();
        // Names give way, numbers do not.
        let name_width = widest(characters, &names).min(usize::from(inner.width) / 3) as u16;
        let number_width = widest(characters, &numbers) as u16;
        for (((class, name), number), row) in classes.iter().zip(&names).zip(&numbers).zip(inner.rows()) {
            let parts =
                [Constraint::Length(name_width), Constraint::Min(0), Constraint::Length(number_width)];
            let [left, middle, right] = Layout::horizontal(parts).spacing(1).areas(row);
            frame.render_widget(Line::from(name.as_str()), left);
            let bars = self.bars(&class.name, middle.width.into());
            frame.render_widget(Sparkline::default().data(bars), middle);
            frame.render_widget(Line::from(number.as_str()).right_aligned(), right);
        }
    }
}
