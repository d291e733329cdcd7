//! Delta debugging: the shortest part of a list that still fails (Zeller and Hildebrandt, "Simplifying and Isolating
//! Failure-Inducing Input", 2002).

use std::future::Future;

use crate::Failure;

/// Says whether a part of a list fails. It may be wrong in one direction, as real servers are: a part that it says fails does.
pub(super) trait Trial<T> {
    /// None if it does not; else what of the part can have been needed.
    fn fails(&mut self, part: &[T]) -> impl Future<Output = Result<Option<Vec<T>>, Failure>> + Send;
}

/// A part that fails, from which nothing can be left out as far as was tried: an empty one if nothing is needed. At most `tries`
/// parts are tried.
///
/// # Errors
///
/// Those of the trial.
pub(super) async fn shrink<T: Clone + Send + Sync>(
    mut parts: Vec<T>,
    mut tries: usize,
    trial: &mut (impl Trial<T> + Send),
) -> Result<Vec<T>, Failure> {
    let mut chunks = 1;
    while !parts.is_empty() {
        let size = parts.len().div_ceil(chunks);
        let mut shorter = None;
        for from in (0..parts.len()).step_by(size) {
            if tries == 0 {
                return Ok(parts);
            }
            tries -= 1;
            let to = (from + size).min(parts.len());
            let rest: Vec<T> = parts[..from].iter().chain(&parts[to..]).cloned().collect();
            shorter = trial.fails(&rest).await?;
            if shorter.is_some() {
                break;
            }
        }
        match shorter {
            Some(rest) => {
                parts = rest;
                chunks = chunks.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => chunks = (chunks * 2).min(parts.len()),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Needs<'a> {
        needed: &'a [u32],
        tried: usize,
    }

    impl Trial<u32> for Needs<'_> {
        async fn fails(&mut self, part: &[u32]) -> Result<Option<Vec<u32>>, Failure> {
            self.tried += 1;
            let fails = self.needed.iter().all(|needed| part.contains(needed));
            Ok(fails.then(|| part.to_vec()))
        }
    }

    async fn shrunk(length: u32, tries: usize, needed: &[u32]) -> (Vec<u32>, usize) {
        let mut trial = Needs { needed, tried: 0 };
        let left = shrink((0..length).collect(), tries, &mut trial).await.unwrap();
        (left, trial.tried)
    }

    #[tokio::test]
    async fn only_what_is_needed_is_left() {
        for needed in [&[][..], &[0], &[8], &[3, 4], &[0, 8], &[1, 4, 7], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
            let (left, tried) = shrunk(9, 1_000, needed).await;
            assert_eq!(left, needed, "in {tried} tries");
            assert!(tried <= 60, "{tried} tries for {needed:?}");
        }
    }

    #[tokio::test]
    async fn no_more_is_tried_than_is_allowed_and_what_is_left_fails() {
        for tries in 0..12 {
            let (left, tried) = shrunk(9, tries, &[2, 7]).await;
            assert!(tried <= tries);
            assert!(left.contains(&2) && left.contains(&7), "{left:?}");
        }
    }
}
