// SPDX-License-Identifier: Apache-2.0
//! Counters as they change: a screen that rewrites itself on a terminal, else one report an interval.

use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Table};

use crate::attachment::Attachment;
use crate::error::{Error, Result};
use crate::output;
use crate::pins::Root;
use crate::stats::{self, Reading, Report};

/// How soon a key or a signal is noticed.
const RESPONSE: Duration = Duration::from_millis(100);

/// Where in `Report::CLASS_HEADER` the outcomes other than pass begin.
const FIRST_OUTCOME: usize = 6;

/// Set by SIGINT and SIGTERM, so that a command ends in order.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn on_signals() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| Error::other(format!("cannot wait for signals: {error}")))?;
        }
        Ok(Self(flag))
    }

    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond a signal. Returns false when one came.
    pub fn sleep(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        while !self.asked() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(RESPONSE));
        }
        false
    }
}

/// The attachment's successive reports. Each looks the attachment up anew, as it may be replaced or detached.
struct Source<'a> {
    root: &'a Root,
    interface: &'a str,
    before: Option<Reading>,
}

impl Source<'_> {
    fn next(&mut self) -> Result<Report> {
        let attachment = Attachment::find(self.root, Some(self.interface))?;
        let reading = Reading::take(&attachment)?;
        let report = stats::report(&attachment, &reading, self.before.as_ref())?;
        self.before = Some(reading);
        Ok(report)
    }
}

/// Shows the counters until a signal, `q` or Ctrl-C.
pub fn watch(root: &Root, interface: &str, interval: Duration, json: bool, stop: &Stop) -> Result<()> {
    let mut source = Source { root, interface, before: None };
    if !json && stdout().is_terminal() {
        return on_screen(&mut source, interval, stop);
    }
    loop {
        let report = source.next()?;
        if json {
            let line =
                serde_json::to_string(&report).map_err(|error| Error::other(format!("JSON: {error}")))?;
            println!("{line}");
        } else {
            report.print();
            println!();
        }
        output::check()?;
        if !stop.sleep(interval) {
            return Ok(());
        }
    }
}

fn on_screen(source: &mut Source<'_>, interval: Duration, stop: &Stop) -> Result<()> {
    let failed = |error: std::io::Error| Error::other(format!("cannot draw on the terminal: {error}"));
    let mut report = source.next()?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    // The terminal is restored before anything else happens with the result.
    let result = (|| {
        let mut next = Instant::now() + interval.min(Duration::from_millis(500));
        loop {
            terminal.draw(|frame| draw(frame, &report)).map_err(failed)?;
            loop {
                let left = next.saturating_duration_since(Instant::now());
                if stop.asked()
                    || (event::poll(left.min(RESPONSE)).map_err(failed)?
                        && quits(&event::read().map_err(failed)?))
                {
                    return Ok(());
                }
                if left.is_zero() {
                    break;
                }
            }
            next = Instant::now() + interval;
            report = source.next()?;
        }
    })();
    ratatui::restore();
    result
}

fn quits(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

fn draw(frame: &mut Frame<'_>, report: &Report) {
    let classes = report.classes.len() as u16 + 3;
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(classes),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [title, class_area, counter_area, footer] = areas.areas(frame.area());
    frame.render_widget(Line::from(report.title()).bold(), title);

    let cells = report.class_cells();
    // As wide as their content, and without the outcomes that never occurred: 80 columns are to be enough.
    let occurred = |column: &usize| *column < FIRST_OUTCOME || cells.iter().any(|row| row[*column] != "0");
    let columns: Vec<usize> = (0..Report::CLASS_HEADER.len()).filter(occurred).collect();
    let header = Report::CLASS_HEADER.map(str::to_string);
    let width = |column: usize| cells.iter().chain([&header]).map(|row| row[column].chars().count()).max();
    let widths = columns.iter().map(|column| Constraint::Length(width(*column).unwrap_or(0) as u16));
    let line = |cells: &[String; 10]| {
        Row::new(columns.iter().map(|column| cells[*column].clone()).map(right_from(2)))
    };
    let rows = cells.iter().map(|row| {
        let dropped = row[FIRST_OUTCOME..].iter().any(|count| count != "0");
        line(row).style(if dropped { Style::new().fg(Color::Red) } else { Style::new() })
    });
    let table = Table::new(rows, widths)
        .header(line(&header).style(Style::new().bold()))
        .column_spacing(2)
        .block(Block::bordered().title("classes"));
    frame.render_widget(table, class_area);

    let rows = report
        .counters()
        .into_iter()
        .map(|(name, value)| Row::new([name.to_string(), value.to_string()].map(right_from(1))));
    let table = Table::new(rows, [Constraint::Length(22), Constraint::Length(20)])
        .block(Block::bordered().title("packets, flows, events"));
    frame.render_widget(table, counter_area);
    frame.render_widget(Line::from("q quits; the program stays attached").dim(), footer);
}

/// Makes cells of a row: the first columns stand left, the others right. Columns are counted by the calls.
fn right_from<T: Into<String>>(left: usize) -> impl FnMut(T) -> Cell<'static> {
    let mut column = 0;
    move |text| {
        column += 1;
        let line = Line::from(text.into());
        Cell::from(if column > left { line.right_aligned() } else { line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ClassRow, Events, Flows, StatusRow};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;
    use serde_json::json;

    fn report() -> Report {
        let count = |packets: u64| json!({"packets": packets, "bytes": 0});
        let outcomes = json!({"pass": count(1), "drop": count(4321), "limited": count(0), "would-drop": count(0),
            "would-limit": count(0)});
        let class = |name: &str| ClassRow {
            name: name.to_string(),
            action: "drop".to_string(),
            packets: 4322,
            bytes: 99,
            packets_per_second: Some(1234.0),
            bits_per_second: None,
            outcomes: outcomes.as_object().cloned().unwrap_or_default(),
        };
        Report {
            interface: "eth0".to_string(),
            time: String::new(),
            attached: true,
            mode: "enforce".to_string(),
            bundle: Some("forest".to_string()),
            interval_seconds: Some(1.0),
            classes: vec![class("syn-flood"), class("web")],
            status: vec![StatusRow {
                status: crate::abi::Status::NotIp,
                packets: 17,
                bytes: 0,
                packets_per_second: None,
            }],
            inferred: 4322,
            flows: Flows { new: 5, expired: 0, evicted: 0, refused: 0, missed: 0 },
            events: Events { sent: 0, limited: 0 },
            shadow: None,
        }
    }

    fn screen(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &report())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_shows_classes_counters_and_the_way_out() {
        let screen = screen(140, 24);
        for expected in
            ["eth0  forest  mode enforce", "syn-flood", "4321", "1.2 k", "not_ip", "17", "q quits"]
        {
            assert!(screen.contains(expected), "{expected} is not in\n{screen}");
        }
    }

    #[test]
    fn eighty_columns_are_enough_and_what_never_occurred_is_left_out() {
        let screen = screen(80, 24);
        let header = screen.lines().find(|line| line.contains("packet/s")).unwrap();
        assert!(header.contains("drop") && !header.contains("limited"), "{screen}");
        assert!(screen.lines().any(|line| line.contains("syn-flood") && line.contains("4321")), "{screen}");
    }

    #[test]
    fn a_terminal_too_small_is_no_failure() {
        for (width, height) in [(1, 1), (10, 3), (80, 5)] {
            screen(width, height);
        }
    }

    #[test]
    fn q_escape_and_control_c_quit() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert!(quits(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(quits(&key(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(quits(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!quits(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!quits(&Event::FocusGained));
    }
}
