//! How many digits of an id name one object (git: `core.abbrev`, `auto`).

use crate::EngineError;
use crate::graph::Graph;
use cuesta_git::ObjectId;

const DIGITS_MIN: usize = 7;

/// The digits it takes: as many as keep collisions unlikely among so many objects, and then as many as there are in fact.
/// Copies of an object in several layers count as several objects, as packs do for git.
pub(super) fn digits(graph: &Graph, oid: &ObjectId) -> Result<usize, EngineError> {
    let (mut count, mut digits) = (0u64, 0);
    for number in 0..graph.slot_count() {
        let lookup = &graph.slot(number)?.index.lookup;
        count += u64::from(lookup.len());
        // Three bytes are fewer digits than the least that is ever given.
        let prefix = oid.as_bytes().get(..DIGITS_MIN / 2).unwrap_or_default();
        for rank in lookup.ranks_with_prefix(prefix).into_iter().flatten() {
            let other = lookup.oid(rank);
            if other != *oid {
                digits = digits.max(shared_digits(oid, &other) + 1);
            }
        }
    }
    let bits = u64::BITS - count.leading_zeros();
    let likely = usize::try_from(bits.div_ceil(2)).unwrap_or(DIGITS_MIN);
    Ok(digits.max(likely).max(DIGITS_MIN).min(oid.as_bytes().len() * 2))
}

fn shared_digits(one: &ObjectId, other: &ObjectId) -> usize {
    let (one, other) = (one.to_string(), other.to_string());
    one.bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other)
        .count()
}
