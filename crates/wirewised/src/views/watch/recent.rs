// SPDX-License-Identifier: Apache-2.0
//! The latest events of what runs, whatever replaces it meanwhile.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Block;

use crate::attachment::Attachment;
use crate::error::Result;
use crate::reading::events::{Event, Events, Listener};
use crate::views::flow_key::end;
use crate::views::terminal::wrapped;

/// More than a terminal has lines.
const KEPT: usize = 200;

#[derive(Default)]
pub struct Recent {
    /// Where events come from, and since when that runs.
    source: Option<(Events, Option<String>)>,
    latest: Latest,
    /// Why there are none to be read.
    trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Latest(VecDeque<Event>);

impl Listener for Latest {
    fn event(&mut self, event: &Event) -> Result<()> {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(event.clone());
        Ok(())
    }
}

impl Recent {
    /// What is new. The counters are shown even where events cannot be read, so that is no error.
    pub fn read(&mut self, running: &Attachment) {
        self.trouble = self.try_read(running).err().map(|error| error.to_string());
    }

    fn try_read(&mut self, running: &Attachment) -> Result<()> {
        let since = running.meta.as_ref().map(|meta| meta.since.clone());
        if self.source.as_ref().is_none_or(|(_, before)| *before != since) {
            self.latest.0.clear();
            self.source = Some((running.events()?, since));
        }
        self.source.as_mut().map_or(Ok(()), |(events, _)| events.tell(&mut [&mut self.latest]))
    }

    /// The oldest first.
    fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.latest.0.iter()
    }

    /// How many events, or other lines, there are.
    pub fn len(&self) -> usize {
        self.latest.0.len() + usize::from(self.trouble.is_some())
    }

    /// The newest at the bottom, each whole.
    pub fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let block = Block::bordered().title("latest events");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let texts = self.trouble.clone().into_iter();
        let texts = texts.chain(self.events().rev().map(describe));
        let mut lines: Vec<String> = Vec::new();
        for text in texts {
            let more = broken(&text, inner.width.into());
            if lines.len() + more.len() > inner.height.into() {
                break;
            }
            lines.splice(0..0, more);
        }
        for (line, row) in lines.into_iter().zip(inner.rows()) {
            frame.render_widget(Line::from(line), row);
        }
    }

    #[cfg(test)]
    pub fn of(events: impl IntoIterator<Item = Event>) -> Self {
        Self { latest: Latest(events.into_iter().collect()), ..Self::default() }
    }
}

fn describe(event: &Event) -> String {
    let (flow, said) = (&event.flow, &event.wirewise);
    let time = event.timestamp.get(11..19).unwrap_or_default();
    let outcome = said.happened();
    let (from, to) = (end((flow.src_ip, flow.src_port)), end((flow.dest_ip, flow.dest_port)));
    format!("{time} {outcome} {} {from} > {to} {}", said.class, flow.proto.as_deref().unwrap_or_default())
}

/// Lines of at most this width. A word that is longer goes on in the next line: nothing is cut off.
fn broken(text: &str, width: usize) -> Vec<String> {
    let lines = wrapped(text, Some(width), 1);
    let part = |line: &str| {
        let characters: Vec<char> = line.chars().collect();
        characters.chunks(width.max(1)).map(|part| part.iter().collect()).collect::<Vec<String>>()
    };
    lines.lines().flat_map(part).collect()
}
