// SPDX-License-Identifier: Apache-2.0
//! Counters as they change: a screen that rewrites itself on a terminal, else lines or JSON, once an interval.

mod history;
mod matrix;
mod recent;
mod screen;
mod series;

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::attachment::Attachment;
use crate::error::{Error, Result};
use crate::stop::{RESPONSE, Stop};
use crate::text::output;
use crate::views::stats;
use crate::views::watch::history::History;
use crate::views::watch::recent::Recent;
use crate::views::watch::screen::{Screen, Sort};
use crate::views::watch::series::Series;

/// Shows the counters until a signal, `q` or Ctrl-C. find : what runs, each time anew.
pub fn watch(
    find: impl Fn() -> Result<Attachment>,
    interval: Duration,
    json: bool,
    stop: &Stop,
) -> Result<()> {
    if !json && stdout().is_terminal() {
        return on_screen(find, interval, stop);
    }
    let mut series = Series::new(find);
    loop {
        let statistics = series.read()?;
        if json {
            let line =
                serde_json::to_string(&statistics).map_err(|error| Error::other(format!("JSON: {error}")))?;
            println!("{line}");
        } else {
            stats::print(&statistics);
            println!();
        }
        output::check()?;
        if !stop.sleep(interval) {
            return Ok(());
        }
    }
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Quit,
    Sort,
}

fn on_screen(find: impl Fn() -> Result<Attachment>, interval: Duration, stop: &Stop) -> Result<()> {
    let failed = |error: std::io::Error| Error::other(format!("cannot draw on the terminal: {error}"));
    let mut series = Series::new(&find);
    let (mut history, mut recent, mut sort) = (History::default(), Recent::default(), Sort::default());
    let mut statistics = series.read()?;
    recent.read(&find()?);
    let mut terminal = ratatui::try_init().map_err(failed)?;
    // This end is kept, so that keys never end: where nobody types, the view goes on.
    let (tell, keys) = mpsc::channel();
    let teller = tell.clone();
    thread::spawn(move || tell_keys(&teller));
    // The terminal is restored before anything else happens with the result.
    let result = (|| {
        let mut next = Instant::now() + interval.min(Duration::from_millis(500));
        loop {
            let screen = Screen { statistics: &statistics, history: &history, recent: &recent, sort };
            terminal.draw(|frame| screen.draw(frame)).map_err(failed)?;
            let left = next.saturating_duration_since(Instant::now());
            if stop.asked() {
                return Ok(());
            }
            match keys.recv_timeout(left.min(RESPONSE)) {
                Ok(Key::Quit) => return Ok(()),
                Ok(Key::Sort) => sort = sort.next(),
                Err(_) if left.is_zero() => {
                    next = Instant::now() + interval;
                    statistics = series.read()?;
                    history.add(&statistics);
                    recent.read(&find()?);
                }
                Err(_) => {}
            }
        }
    })();
    drop(tell);
    ratatui::restore();
    result
}

/// Tells what keys ask for, for as long as there is a terminal. In a thread of its own: the beginning of an escape sequence makes the
/// reader wait for the rest, however long that takes, and no signal ends that.
fn tell_keys(tell: &Sender<Key>) {
    while let Ok(event) = event::read() {
        if asked(&event).is_some_and(|key| tell.send(key).is_err()) {
            return;
        }
    }
}

fn asked(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('s') => Some(Key::Sort),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn q_escape_and_control_c_quit_and_s_sorts() {
        let key = |code, modifiers| asked(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(key(KeyCode::Esc, KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('s'), KeyModifiers::NONE), Some(Key::Sort));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(asked(&Event::FocusGained), None);
    }
}
