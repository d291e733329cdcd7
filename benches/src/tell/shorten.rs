//! What is left out where a time line is longer than a screen.

/// The lines, at most `most` of them: messages are left out first, from the middle outwards, because what happened last is what
/// a scenario is about; then what somebody does. Each comes with whether it is a message.
pub(super) fn to(lines: Vec<(bool, String)>, most: usize) -> Vec<String> {
    let lines = without_middle(lines, most, |is_message| is_message);
    let lines = without_middle(lines, most, |_any| true);
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Leaves out what may be left out of the smallest part in the middle with which the rest is short enough, or of all.
fn without_middle(lines: Vec<(bool, String)>, most: usize, may_go: fn(bool) -> bool) -> Vec<(bool, String)> {
    if lines.len() <= most {
        return lines;
    }
    // One line for the note.
    let too_many = lines.len() + 1 - most;
    let going =
        |kept: usize| lines[kept..lines.len() - kept].iter().filter(|(is_message, _)| may_go(*is_message)).count();
    let kept = (0..=lines.len() / 2).rev().find(|kept| going(*kept) >= too_many).unwrap_or(0);
    let left_out = going(kept);
    if left_out == 0 {
        return lines;
    }
    let middle = kept..lines.len() - kept;
    let mut note = Some((false, format!("             ... {left_out} lines left out ...\n")));
    let shown = lines
        .into_iter()
        .enumerate()
        .filter_map(|(at, line)| if middle.contains(&at) && may_go(line.0) { note.take() } else { Some(line) });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(lines: &[(bool, &str)], most: usize) -> Vec<String> {
        to(lines.iter().map(|(is_message, text)| (*is_message, (*text).to_owned())).collect(), most)
    }

    #[test]
    fn messages_of_the_middle_go_first() {
        let lines =
            [(true, "first"), (false, "a"), (true, "m1"), (false, "b"), (true, "m2"), (false, "c"), (true, "last")];
        assert_eq!(shortened(&lines, 7), ["first", "a", "m1", "b", "m2", "c", "last"]);
        let six = shortened(&lines, 6);
        assert_eq!((six.len(), &*six[0], &*six[5]), (6, "first", "last"), "{six:?}");
        assert!(["a", "b", "c"].iter().all(|act| six.iter().any(|line| line == act)), "{six:?}");
    }

    #[test]
    fn what_somebody_does_goes_when_there_is_nothing_else() {
        let acts: Vec<_> = (0..100).map(|at| (false, format!("act {at}"))).collect();
        let shown = to(acts, 10);
        assert!((9..=10).contains(&shown.len()), "{shown:?}");
        assert_eq!((&*shown[0], &**shown.last().unwrap()), ("act 0", "act 99"));
    }
}
