// SPDX-License-Identifier: Apache-2.0
//! The log, on standard error: for a terminal with colours, for the journal with the priority of each line.

use std::fmt;
use std::io::IsTerminal;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The least that is logged.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum LogLevel {
    /// What failed
    Error,
    /// Also what may need somebody
    Warn,
    /// Also what was changed, and who asked for it
    Info,
    /// Also what comes and goes by itself
    Debug,
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

pub fn begin(least: LogLevel) {
    let least = Level::from(least);
    // Libraries log their warnings only: libbpf's other messages are of little use to an operator.
    let shown = Targets::new().with_default(least.min(Level::WARN)).with_target("wirewised_serve", least);
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let to_stderr = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(least)
        .with_ansi(!journal && std::io::stderr().is_terminal());
    let lines = Format::default().with_target(false).without_time();
    if journal {
        to_stderr.event_format(ForJournal(lines.with_level(false))).finish().with(shown).init();
    } else {
        to_stderr.event_format(lines).finish().with(shown).init();
    }
}

/// Puts the priority in front of a line as sd-daemon(3) says, where the journal looks for it (`SyslogLevelPrefix=`).
struct ForJournal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}
