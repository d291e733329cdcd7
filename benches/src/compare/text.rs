//! A comparison as people read it: tables, what was measured beside them, and what is not as documented.

use std::fmt::Write as _;

use super::{Compared, Comparison, Fault, Speed};
use crate::lab::Figure;
use crate::report::{Cell, Table, Tone, figure};

/// What stands for a strategy above its column, where there are more faults than a line could name strategies.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

impl Comparison {
    /// The tables, for people; with `colours` for a terminal that shows them.
    #[must_use]
    pub fn to_text(&self, colours: bool) -> String {
        let mut text = String::new();
        let mut add = |part: &str| text.push_str(part);
        if let Some(table) = self.speed_table() {
            add(&table.render(colours));
            add("\npair: one task acquires and releases, median. 64 keys: 64 tasks, a key each, pairs a second.\n");
            add("x raw: beside SET NX PX + EVALSHA on a connection of the same kind, in the same seconds; only\n");
            add("ratios mean something. 1 key: 8 clients want it, grants a second, and whether the counter that\n");
            add("it guards is right.\n\n");
        }
        if let Some(table) = self.fault_table() {
            add(&table.render(colours));
            add("\nbreaks, holds: as documented.  -: cannot apply; the report says why.\n");
            let legend: Vec<_> = LETTERS.chars().zip(&self.strategies).collect();
            for line in legend.chunks(3) {
                let names = line.iter().map(|(letter, compared)| format!("{letter} {:20}", compared.strategy));
                add(names.collect::<Vec<_>>().join("  ").trim_end());
                add("\n");
            }
            add("\n");
            for told in &self.scenarios {
                add(&format!("{:10} {}\n", told.id, told.title));
            }
            add(&self.figures());
            add(&format!("\nSlowest: {}\n\n", self.slowest()));
        }
        for compared in &self.strategies {
            for fault in compared.faults.iter().filter(|fault| !fault.as_documented) {
                add(&fault.complaint(compared.strategy));
            }
            if compared.contended_as_documented == Some(false) {
                add(&format!(
                    "UNEXPECTED  {}: 8 clients on one key broke it: {:?}\n",
                    compared.strategy, compared.contended
                ));
            }
        }
        let verdict = if self.as_documented { "Everything as documented" } else { "NOT as documented" };
        add(&format!("{verdict}. Redis {}, {:.0} s.\n", self.redis, self.took_s));
        text
    }

    fn speed_table(&self) -> Option<Table> {
        let mut table = Table::new(["speed", "pair us", "x raw", "64 keys /s", "x raw", "1 key /s", "counter"]);
        for floor in &self.floors {
            let cells = floor.cells().into_iter().chain(["-".into(), "-".into()]);
            table.row([floor.name.into()].into_iter().chain(cells));
        }
        for compared in &self.strategies {
            let cells = compared.speed.as_ref()?.cells().into_iter().chain(compared.contended_cells()?);
            table.row([compared.strategy.into()].into_iter().chain(cells));
        }
        Some(table)
    }

    /// A row for each scenario, because there are more of them than of strategies.
    fn fault_table(&self) -> Option<Table> {
        if self.scenarios.is_empty() {
            return None;
        }
        let letters = LETTERS.chars().take(self.strategies.len()).map(String::from);
        let mut table = Table::new(["fault".to_owned()].into_iter().chain(letters));
        for (at, told) in self.scenarios.iter().enumerate() {
            let cells = self.strategies.iter().map(|compared| compared.faults[at].cell());
            table.row([told.id.into()].into_iter().chain(cells));
        }
        Some(table)
    }

    /// What the scenarios measured, a line for each figure.
    fn figures(&self) -> String {
        let mut lines: Vec<(&str, &str, Vec<String>)> = Vec::new();
        for compared in &self.strategies {
            for fault in &compared.faults {
                for Figure { of, value, .. } in &fault.figures {
                    let told = format!("{} {value}", compared.strategy);
                    match lines.iter_mut().find(|(scenario, line, _)| (*scenario, *line) == (fault.scenario, of)) {
                        Some((.., told_before)) => told_before.push(told),
                        None => lines.push((fault.scenario, of, vec![told])),
                    }
                }
            }
        }
        lines.iter().map(|(scenario, of, told)| format!("\n{scenario}, {of}: {}.\n", told.join(", "))).collect()
    }

    /// The cells that took longest.
    fn slowest(&self) -> String {
        let mut cells: Vec<_> = self
            .strategies
            .iter()
            .flat_map(|compared| compared.faults.iter().map(move |fault| (fault, compared.strategy)))
            .collect();
        cells.sort_by(|(one, _), (other, _)| other.took_s.total_cmp(&one.took_s));
        let cells = cells
            .iter()
            .take(5)
            .map(|(fault, strategy)| format!("{} {strategy} {:.1} s", fault.scenario, fault.took_s));
        cells.collect::<Vec<_>>().join(", ")
    }
}

impl Speed {
    fn cells(&self) -> [Cell; 4] {
        let times = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        [
            figure(self.uncontended.p50_us).into(),
            times(self.uncontended_x_raw).into(),
            figure(self.distinct_keys.ops_per_s).into(),
            times(self.distinct_keys_x_raw).into(),
        ]
    }
}

impl Compared {
    fn contended_cells(&self) -> Option<[Cell; 2]> {
        let contended = self.contended.as_ref()?;
        let tone = match (contended.is_sound(), self.contended_as_documented) {
            (true, _) => Tone::Good,
            (false, Some(true)) => Tone::Bad,
            (false, _) => Tone::Alarm,
        };
        let counter = if contended.is_sound() {
            "right".to_owned()
        } else {
            let broken: usize = contended.violations.iter().map(|(_, count)| count).sum();
            format!("{} lost, {broken} violations", contended.lost_updates)
        };
        Some([figure(contended.grants_per_s).into(), Cell::new(counter, tone)])
    }
}

impl Fault {
    fn cell(&self) -> Cell {
        match (self.as_documented, self.observed) {
            (true, "breaks") => Cell::new("breaks", Tone::Bad),
            (true, "holds") => Cell::new("holds", Tone::Good),
            (true, other) => other.into(),
            (false, _) => Cell::new("UNEXPECTED", Tone::Alarm),
        }
    }

    fn complaint(&self, strategy: &str) -> String {
        let Self { scenario, expected, because, observed, .. } = self;
        let mut text =
            format!("UNEXPECTED  {scenario}, {strategy}: observed `{observed}`, documented `{expected}`: {because}\n");
        for seen in self.not_made_because.iter().chain(&self.seen) {
            writeln!(text, "            {seen}").expect("a string takes every text");
        }
        text
    }
}
