// SPDX-License-Identifier: Apache-2.0
//! One picture: classes, how their rates went, where a shadow disagrees, counters, the latest events.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Row, Table};

use crate::reading::statistics::{ClassRow, Statistics};
use crate::text::table::Columns;
use crate::views::fit;
use crate::views::stats;
use crate::views::watch::history::History;
use crate::views::watch::matrix::matrix;
use crate::views::watch::recent::Recent;

/// Which classes stand first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// As in the bundle.
    #[default]
    Bundle,
    Packets,
    Rate,
}

impl Sort {
    pub fn next(self) -> Self {
        match self {
            Self::Bundle => Self::Packets,
            Self::Packets => Self::Rate,
            Self::Rate => Self::Bundle,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bundle => "as in the bundle",
            Self::Packets => "by packets",
            Self::Rate => "by packet/s",
        }
    }

    fn apply(self, classes: &[ClassRow]) -> Vec<&ClassRow> {
        let mut sorted: Vec<&ClassRow> = classes.iter().collect();
        match self {
            Self::Bundle => {}
            Self::Packets => sorted.sort_by_key(|class| std::cmp::Reverse(class.packets)),
            Self::Rate => sorted.sort_by(|a, b| {
                let rate = |class: &ClassRow| class.packets_per_second.unwrap_or(0.0);
                rate(b).total_cmp(&rate(a))
            }),
        }
        sorted
    }
}

pub struct Screen<'a> {
    pub statistics: &'a Statistics,
    pub history: &'a History,
    pub recent: &'a Recent,
    pub sort: Sort,
}

/// The parts from top to bottom.
const PARTS: [&str; 5] = ["classes", "rates", "shadow", "counters", "events"];
/// Their numbers in the order in which they get room.
const NEED: [usize; 5] = [0, 3, 2, 1, 4];

/// Heights of the parts, 0 for one that there is no room for. wanted : the least and the most lines of each; most 0: it is not wanted.
fn heights(room: u16, wanted: [(u16, u16); 5]) -> [u16; 5] {
    let (mut given, mut left) = ([0; 5], room);
    for part in NEED {
        let (least, most) = wanted[part];
        // There is always some of the first.
        if most > 0 && (least <= left || part == NEED[0]) {
            given[part] = least.min(left);
            left -= given[part];
        }
    }
    for part in NEED {
        if given[part] > 0 {
            let more = wanted[part].1.saturating_sub(given[part]).min(left);
            given[part] += more;
            left -= more;
        }
    }
    given
}

impl Screen<'_> {
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let classes = self.sort.apply(&self.statistics.classes);
        let counters = stats::counter_table(&stats::counters(self.statistics));
        let matrix = self.statistics.shadow.as_ref().filter(|shadow| shadow.packets > 0).map(matrix);
        let lines = |count: usize, least: usize, frame: u16| match count {
            0 => (0, 0),
            count => (count.min(least) as u16 + frame, count as u16 + frame),
        };
        let wanted = [
            lines(classes.len(), 8, 3),
            lines(classes.len(), 4, 2),
            lines(matrix.as_ref().map_or(0, |matrix| matrix.rows.len()), 8, 3),
            lines(counters.rows.len(), 4, 2),
            // An event may take more than one line.
            lines(4 * self.recent.len(), 3, 2),
        ];
        let [title, body, footer] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
                .areas(frame.area());
        let given = heights(body.height, wanted);
        let areas: [Rect; 5] = Layout::vertical(given.map(Constraint::Length)).areas(body);

        frame.render_widget(Line::from(stats::title(self.statistics)).bold(), title);
        let (dropped, plain) = (Style::new().fg(Color::Red), Style::new());
        let styles = classes.iter().map(|class| if class.is_acted_on() { dropped } else { plain });
        let table = stats::class_table(classes.iter().copied(), true);
        let name = match self.sort {
            Sort::Bundle => "classes".to_string(),
            sort => format!("classes {}", sort.name()),
        };
        draw_table(frame, areas[0], &name, &table, true, styles);
        self.history.draw(frame, areas[1], &classes);
        if let Some((matrix, shadow)) = matrix.as_ref().zip(self.statistics.shadow.as_ref()) {
            // Rounded down: 100 % is said of all packets only.
            let share = (1e4 * shadow.agree as f64 / shadow.packets as f64).floor() / 1e2;
            let name = format!("shadow agrees on {share:.2} %");
            draw_table(frame, areas[2], &name, matrix, true, std::iter::repeat(plain));
        }
        draw_table(frame, areas[3], "packets, flows, events", &counters, false, std::iter::repeat(plain));
        self.recent.draw(frame, areas[4]);

        let hidden: Vec<_> = (0..PARTS.len())
            .filter(|part| wanted[*part].1 > 0 && given[*part] == 0)
            .map(|part| PARTS[part])
            .collect();
        let hidden =
            if hidden.is_empty() { String::new() } else { format!("; no room for: {}", hidden.join(", ")) };
        let keys = format!("q quits, s sorts {}{hidden}", self.sort.next().name());
        frame.render_widget(Line::from(keys).dim(), footer);
    }
}

/// A table in a frame, as much of it as there is room for; numbers are never cut (fit.rs). styles : of its rows.
fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    table: &fit::Table,
    header: bool,
    styles: impl Iterator<Item = Style>,
) {
    let fitted = table.fit(Some(area.width.saturating_sub(2).into()));
    let rows = fitted.lines.len() - 1;
    let hidden = rows.saturating_sub(usize::from(area.height.saturating_sub(2 + u16::from(header))));
    let title = if hidden > 0 { format!("{title}, {hidden} more") } else { title.to_string() };
    let room = usize::from(area.width).saturating_sub(2 + title.chars().count() + 2);
    let title = fitted.note_within(room).map_or(title.clone(), |note| format!("{title}; {note}"));
    let line = |cells: &Vec<String>| {
        let cell = |(column, text): (usize, &String)| {
            let line = Line::from(text.clone());
            Cell::from(if column < fitted.left { line } else { line.right_aligned() })
        };
        Row::new(cells.iter().enumerate().map(cell).collect::<Vec<_>>())
    };
    let columns = Columns::of(&fitted.lines);
    // Names give way where even the least does not fit.
    let mut widths: Vec<u16> = columns.widths().iter().map(|width| *width as u16).collect();
    let over = (columns.width() as u16).saturating_sub(area.width.saturating_sub(2));
    if let Some(first) = widths.first_mut() {
        *first = first.saturating_sub(over);
    }
    let rows = fitted.lines[1..].iter().zip(styles).map(|(cells, style)| line(cells).style(style));
    let widget = Table::new(rows, widths.into_iter().map(Constraint::Length))
        .column_spacing(2)
        .block(Block::bordered().title(title));
    let names = line(&fitted.lines[0]).style(Style::new().bold());
    frame.render_widget(if header { widget.header(names) } else { widget }, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Outcome;
    use crate::object::flow_table::{FlowKey, Vlans};
    use crate::reading::agreement::{Agreement, Pair};
    use crate::reading::counters::{EventCounters, FlowCounters};
    use crate::reading::events::{EVENT_TYPE, Event, Judgement, Tuple, Weight};
    use crate::reading::statistics::StatusRow;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    fn statistics() -> Statistics {
        report_of(4321)
    }

    fn report_of(dropped: u64) -> Statistics {
        let count = |packets: u64| json!({"packets": packets, "bytes": 0});
        let outcomes = json!({"pass": count(1), "drop": count(dropped), "limited": count(0), "would-drop": count(0),
            "would-limit": count(0)});
        let class = |name: &str| ClassRow {
            asked: None,
            name: name.to_string(),
            action: "drop".to_string(),
            packets: dropped + 1,
            bytes: 99 * dropped,
            packets_per_second: Some(1234.0),
            bits_per_second: Some(1e9),
            outcomes: outcomes.as_object().cloned().unwrap_or_default(),
        };
        Statistics {
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
            inferred: dropped + 1,
            flows: FlowCounters { new: 5, expired: 0, evicted: 0, refused: 0, missed: 0 },
            aggregates: None,
            events: EventCounters { sent: 0, limited: 0 },
            networks: Vec::new(),
            metadata: None,
            denied: Vec::new(),
            shadow: None,
        }
    }

    fn screen(width: u16, height: u16) -> String {
        drawn(&statistics(), &Recent::default(), Sort::Bundle, (width, height))
    }

    /// After some looks at these counters, at rates that rise.
    fn drawn(statistics: &Statistics, recent: &Recent, sort: Sort, (width, height): (u16, u16)) -> String {
        let mut history = History::default();
        for rate in 0..100 {
            let mut then = report_of(1);
            then.classes.iter_mut().for_each(|class| class.packets_per_second = Some(f64::from(rate)));
            history.add(&then);
        }
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let screen = Screen { statistics, history: &history, recent, sort };
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn pair(first: &str, shadow: &str, packets: u64) -> Pair {
        Pair { first: first.to_string(), shadow: shadow.to_string(), packets }
    }

    fn with_shadow(pairs: Vec<Pair>) -> Statistics {
        let sum = |same: bool| -> u64 {
            pairs.iter().filter(|pair| (pair.first == pair.shadow) == same).map(|pair| pair.packets).sum()
        };
        let (agree, disagree) = (sum(true), sum(false));
        let shadow =
            Agreement { bundle: None, since: None, packets: agree + disagree, agree, disagree, pairs };
        Statistics { shadow: Some(shadow), ..statistics() }
    }

    fn event(port: u16, source: &str) -> Event {
        let key = FlowKey {
            source: source.parse().unwrap(),
            destination: "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe".parse().unwrap(),
            source_port: port,
            destination_port: 54321,
            protocol: 6,
            vlans: Vlans::default(),
            teid: None,
        };
        Event {
            timestamp: "2026-03-01T09:35:16.251547+0000".to_string(),
            flow_id: 1,
            in_iface: "eth0".to_string(),
            host: None,
            event_type: EVENT_TYPE,
            flow: Tuple::from(&key),
            alert: None,
            ban: None,
            weight: Weight::default(),
            wirewise: Judgement {
                class: "syn-flood".to_string(),
                action: Some("drop".to_string()),
                outcome: Some(Outcome::Drop),
                packets: 1,
                length: 40,
                count: None,
                source: None,
                proven: false,
                answers: None,
                features: Vec::new(),
            },
        }
    }

    #[test]
    fn no_number_is_cut_at_any_width() {
        for width in 40..160 {
            let screen = drawn(&report_of(5_708_106), &Recent::default(), Sort::Bundle, (width, 24));
            let row = screen.lines().find(|line| line.contains("syn-flood")).unwrap();
            let numbers: Vec<_> = row.split("  ").map(|cell| cell.trim_matches([' ', '│', '"'])).collect();
            for number in numbers.into_iter().filter(|cell| cell.starts_with(|c: char| c.is_ascii_digit())) {
                let known = ["5,708,107", "565,102,494", "5,708,106", "5.7 M", "565.1 M", "1.2 k", "1.0 G"];
                assert!(known.contains(&number), "{number:?} at {width}:\n{screen}");
            }
            let inferred = screen.lines().find(|line| line.contains("inferred")).unwrap();
            assert!(inferred.contains("5,708,107"), "{screen}");
            if width < 60 {
                assert!(screen.contains("no room for: bytes"), "{screen}");
            }
        }
    }

    #[test]
    fn the_screen_shows_classes_counters_and_the_way_out() {
        let screen = screen(140, 24);
        for expected in
            ["eth0  forest  mode enforce", "syn-flood", "4,321", "1.2 k", "not_ip", "17", "q quits"]
        {
            assert!(screen.contains(expected), "{expected} is not in\n{screen}");
        }
    }

    #[test]
    fn eighty_columns_are_enough_and_what_never_occurred_is_left_out() {
        let screen = screen(80, 24);
        let header = screen.lines().find(|line| line.contains("packet/s")).unwrap();
        assert!(header.contains("drop") && !header.contains("limited"), "{screen}");
        assert!(screen.lines().any(|line| line.contains("syn-flood") && line.contains("4,321")), "{screen}");
    }

    #[test]
    fn rates_are_drawn_as_bars_beside_the_number() {
        for width in 40..160 {
            let screen = drawn(&statistics(), &Recent::default(), Sort::Bundle, (width, 24));
            let row =
                screen.lines().filter(|line| line.contains("web")).find(|line| line.contains('█')).unwrap();
            let bars: Vec<char> = row.chars().filter(|c| ('▁'..='█').contains(c)).collect();
            assert!(bars.len() >= 10 && bars.is_sorted() && bars.first() < bars.last(), "{width}: {row}");
            assert!(row.contains("1.2 k"), "{row}");
        }
    }

    #[test]
    fn the_matrix_of_a_shadow_has_every_pair_or_names_the_classes_it_leaves_out() {
        let statistics = with_shadow(vec![
            pair("web", "web", 9_123_456),
            pair("syn-flood", "syn-flood", 765_432),
            pair("syn-flood", "web", 1_234),
            pair("web", "scan", 56),
        ]);
        let wide = drawn(&statistics, &Recent::default(), Sort::Bundle, (100, 40));
        let row = |screen: &str, start: &str| -> Vec<String> {
            let at = screen.find("first, shadow:").unwrap();
            let line = screen[at..].lines().find(|line| line.contains(start)).unwrap().replace('"', "");
            line.split_whitespace()
                .filter(|word| word.chars().any(char::is_alphanumeric))
                .map(str::to_string)
                .collect()
        };
        assert_eq!(row(&wide, "│web"), ["│web", "9,123,456", "0", "56"]);
        assert_eq!(row(&wide, "│syn-flood"), ["│syn-flood", "1,234", "765,432", "0"]);
        assert!(wide.contains("shadow agrees on 99.98 %"), "{wide}");
        for width in 40..100 {
            let screen = drawn(&statistics, &Recent::default(), Sort::Bundle, (width, 40));
            let web = row(&screen, "│web").join(" ");
            assert!(web.contains("9,123,456") || web.contains("9.1 M"), "{width}: {web}");
        }
    }

    #[test]
    fn events_stand_whole_with_the_newest_last_at_any_width() {
        let v6 = "2001:db8:aaaa:bbbb:cccc:dddd:eeee:1111";
        let recent = Recent::of((0..60).map(|number| event(10_000 + number, v6)));
        for width in 40..160 {
            let screen = drawn(&statistics(), &recent, Sort::Bundle, (width, 40));
            let at = screen.find("latest events").unwrap();
            let text: String =
                screen[at..].chars().filter(|c| !c.is_whitespace() && !"│\"".contains(*c)).collect();
            let whole = format!(
                "09:35:16dropsyn-flood[{v6}]:10059>[2001:db8:ffff:ffff:ffff:ffff:ffff:fffe]:54321TCP"
            );
            assert!(text.contains(&whole), "{width}:\n{screen}");
            assert!(text.find("10058").unwrap() < text.find("10059").unwrap());
        }
    }

    #[test]
    fn classes_stand_in_the_order_asked_for() {
        let mut statistics = statistics();
        statistics.classes[0].packets_per_second = Some(5.0);
        statistics.classes[1].packets = 1_000_000;
        let first = |sort| {
            let screen = drawn(&statistics, &Recent::default(), sort, (100, 24));
            if screen.find("syn-flood").unwrap() < screen.find("web").unwrap() { "syn-flood" } else { "web" }
        };
        assert_eq!(
            [first(Sort::Bundle), first(Sort::Packets), first(Sort::Rate)],
            ["syn-flood", "web", "web"]
        );
        assert_eq!(Sort::Rate.next(), Sort::Bundle);
        let screen = drawn(&statistics, &Recent::default(), Sort::Packets, (40, 24));
        assert!(screen.contains("classes by packets") && screen.contains("s sorts by packet/s"), "{screen}");
    }

    #[test]
    fn parts_get_room_by_need_and_those_without_are_named() {
        assert_eq!(heights(50, [(5, 5), (4, 4), (0, 0), (6, 12), (5, 100)]), [5, 4, 0, 12, 29]);
        assert_eq!(heights(12, [(5, 5), (4, 4), (0, 0), (6, 12), (5, 100)]), [5, 0, 0, 7, 0]);
        assert_eq!(heights(3, [(5, 5), (4, 4), (0, 0), (6, 12), (5, 100)]), [3, 0, 0, 0, 0]);
        let screen = screen(80, 15);
        assert!(screen.contains("no room for: rates"), "{screen}");
        let mut many = statistics();
        many.classes = (0..30).flat_map(|_| statistics().classes).collect();
        let screen = drawn(&many, &Recent::default(), Sort::Bundle, (80, 30));
        assert!(screen.contains("classes, ") && screen.contains(" more"), "{screen}");
    }

    #[test]
    fn a_terminal_too_small_is_no_failure() {
        for (width, height) in [(1, 1), (10, 3), (80, 5)] {
            screen(width, height);
        }
    }
}
