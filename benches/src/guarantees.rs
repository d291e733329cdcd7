//! The table of strategies and guarantees in `docs/safety.md`, made from what a run has shown.

use std::fmt::Write as _;

/// Between these lines of the page stands what is generated.
const BEGIN: &str = "<!-- begin: made by ./x compare --faults --docs docs/safety.md -->";
const END: &str = "<!-- end -->";

/// A property, and the scenarios that show it: it holds if all of them do.
const PROPERTIES: &[(&str, &[&str])] = &[
    ("excludes while nothing is at fault", &["C1"]),
    ("no two act when a holder is paused or starved past its deadline", &["S07", "S27"]),
    ("a late write is refused where the resource checks tokens", &["S07+f", "S46+f"]),
    ("no two within their leases when replies are slow", &["S06", "C3"]),
    ("an acquire that lands late ends by itself", &["S05"]),
    ("no two within their leases when owners or ids meet", &["S09", "S57", "S58"]),
    ("survives a suspended machine", &["S08"]),
    ("survives a client's wrong wall clock", &["S11", "S12"]),
    ("survives a jump of a server's wall clock", &["S13", "S15"]),
    ("survives a restart without persistence", &["S36"]),
    ("survives an asynchronous failover", &["S33", "S35"]),
    ("survives eviction", &["S39"]),
    ("survives an administrator who deletes", &["S40"]),
    ("no two act when the store ends a lease or a session early", &["S56"]),
    ("acts on no lease that silence has ended", &["S42", "S59"]),
    ("a crash of the holder frees the lock", &["S01", "S02", "S52"]),
    ("never frees another's lock", &["S18", "S19", "S20", "S21"]),
    ("a release that came too late says so", &["S24"]),
    ("an acquire may be repeated", &["S04", "S60", "S63"]),
    ("a release may be repeated", &["S23"]),
    ("a release works on a full server", &["S26a"]),
    ("a renewal never prolongs another's lock", &["S29", "S31"]),
    ("tokens grow when data is lost", &["S43", "S61"]),
    ("no wake-up is lost", &["S50", "S51", "S55", "S55compact"]),
    ("a cancelled waiter leaves nothing", &["S49", "S54"]),
    ("a wait costs the others nothing", &["S53"]),
];

/// What a scenario did to a strategy: `breaks`, `holds`, or `-` where it cannot apply.
pub(crate) struct Shown<'a> {
    pub(crate) scenario: &'a str,
    /// In the order of the strategies.
    pub(crate) cells: Vec<&'a str>,
}

/// The page with its generated part made anew; none if the page has no place for it.
pub(crate) fn renew(page: &str, strategies: &[&str], shown: &[Shown<'_>]) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n{END}{after}", tables(strategies, shown)))
}

fn tables(strategies: &[&str], shown: &[Shown<'_>]) -> String {
    let mut text = String::new();
    heading(&mut text, "", strategies);
    for (property, scenarios) in PROPERTIES {
        let cells: Vec<_> = (0..strategies.len()).map(|at| verdict(at, scenarios, shown)).collect();
        row(&mut text, &format!("{property} ({})", scenarios.join(", ")), &cells);
    }
    text.push_str("\nAnd each scenario by itself:\n\n");
    heading(&mut text, "scenario", strategies);
    for scenario in shown {
        let cells: Vec<_> = scenario.cells.iter().map(|cell| (*cell).to_owned()).collect();
        row(&mut text, scenario.scenario, &cells);
    }
    text
}

/// `yes`, `no` with the scenarios that break it, or `-` where none of them can apply.
fn verdict(strategy: usize, scenarios: &[&str], shown: &[Shown<'_>]) -> String {
    let of = |id: &str| shown.iter().find(|shown| shown.scenario == id).map_or("-", |shown| shown.cells[strategy]);
    let breaking: Vec<_> = scenarios.iter().copied().filter(|id| of(id) == "breaks").collect();
    if !breaking.is_empty() {
        return if breaking.len() == scenarios.len() { "no".into() } else { format!("no: {}", breaking.join(", ")) };
    }
    if scenarios.iter().any(|id| of(id) == "holds") { "yes".into() } else { "-".into() }
}

fn heading(text: &mut String, first: &str, strategies: &[&str]) {
    let names: Vec<_> = strategies.iter().map(|name| format!("`{name}`")).collect();
    row(text, first, &names);
    row(text, "---", &vec!["---".to_owned(); strategies.len()]);
}

fn row(text: &mut String, first: &str, cells: &[String]) {
    writeln!(text, "| {first} | {} |", cells.join(" | ")).expect("a string takes every text");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_property_is_shown_by_scenarios_that_there_are() {
        for (property, scenarios) in PROPERTIES {
            for id in *scenarios {
                assert!(Scenario::find(id).is_some(), "{id} of `{property}`");
            }
        }
    }

    #[test]
    fn a_property_holds_if_all_its_scenarios_do() {
        let shown = [
            Shown { scenario: "S1", cells: vec!["holds", "breaks", "-", "breaks"] },
            Shown { scenario: "S2", cells: vec!["holds", "holds", "-", "breaks"] },
        ];
        let verdicts: Vec<_> = (0..4).map(|at| verdict(at, &["S1", "S2"], &shown)).collect();
        assert_eq!(verdicts, ["yes", "no: S1", "-", "no"]);
    }

    #[test]
    fn only_the_generated_part_of_a_page_is_renewed() {
        let page = format!("before\n{BEGIN}\nOLD LINES\n{END}\nafter\n");
        let shown = [Shown { scenario: "S07", cells: vec!["breaks"] }];
        let renewed = renew(&page, &["a"], &shown).unwrap();
        assert!(renewed.starts_with("before\n<!-- begin") && renewed.ends_with("<!-- end -->\nafter\n"), "{renewed}");
        assert!(renewed.contains("| S07 | breaks |") && !renewed.contains("OLD"), "{renewed}");
        assert_eq!(renew(&renewed, &["a"], &shown).unwrap(), renewed);
        assert!(renew("no place", &["a"], &shown).is_none());
    }
}
