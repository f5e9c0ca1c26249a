//! How deep chains of deltas may be: pure.
//!
//! Two bounds. One is on steps, for whoever reads one object. The other is on the bytes of all objects of a chain together,
//! for clients hold them all while they resolve it (`git index-pack` does); so large objects have short chains.
//!
//! Where a chain ends, an object is stored whole, which for some is dear: a tree deflates badly and its deltas are tiny. Such
//! objects have *lanes*: every so manyth version is based on the one as many versions before. Steps grow slowly then, at
//! the price of one larger delta in so many.

use cuesta_git::ObjectKind;

/// Deltas below any object.
const DEPTH_MAX: u16 = 50;
/// Bytes of the objects of one chain.
const CHAIN_BYTES_MAX: u64 = 4 << 20;
/// Whatever their size, objects may have so many deltas below.
const DEPTH_MIN: u16 = 8;
/// Trees, and other objects, of at least this size have lanes.
const TREE_LANE_SIZE_MIN: u64 = 4 << 10;
const LANE_SIZE_MIN: u64 = 64 << 10;
/// Versions between two of a lane, at most.
const LANE_MAX: u16 = 16;

const NONE: u32 = u32::MAX;

/// What an entry is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The place of its base; meaningless where that is outside, or there is none.
    pub(super) base: u32,
    /// Deltas below it.
    pub(super) depth: u16,
    /// Which version it is since the last one of the path that is whole.
    step: u16,
}

impl Link {
    /// Of an object that is whole.
    pub(super) const WHOLE: Self = Self {
        base: NONE,
        depth: 0,
        step: 0,
    };
}

/// Deltas that an object of that size may have below it.
fn depth_max(size: u64) -> u16 {
    let by_bytes = CHAIN_BYTES_MAX.checked_div(size).unwrap_or(u64::MAX);
    u16::try_from(by_bytes).unwrap_or(DEPTH_MAX).clamp(DEPTH_MIN, DEPTH_MAX)
}

/// Versions between two of the lane of an object; `None` where the chain just goes on.
fn lane(kind: ObjectKind, size: u64) -> Option<u16> {
    let size_min = match kind {
        ObjectKind::Tree => TREE_LANE_SIZE_MIN,
        _ => LANE_SIZE_MIN,
    };
    (size >= size_min).then(|| (depth_max(size) / 2).min(LANE_MAX))
}

/// The link of an object whose version before is at `before`: to that, or to one further back. `None` if it should be whole.
pub(super) fn extend(links: &[Link], before: u32, kind: ObjectKind, size: u64) -> Option<Link> {
    let step = links.get(before as usize)?.step.saturating_add(1);
    let mut base = before;
    if let Some(lane) = lane(kind, size).filter(|lane| step.is_multiple_of(*lane)) {
        while let Some(link) = links.get(base as usize)
            && link.step > step.saturating_sub(lane)
            && link.base < base
        {
            base = link.base;
        }
    }
    let link = onto(links, base, size)?;
    Some(Link { step, ..link })
}

/// The link of an object with that very base.
pub(super) fn onto(links: &[Link], base: u32, size: u64) -> Option<Link> {
    let below = links.get(base as usize)?;
    let depth = below.depth.saturating_add(1);
    (depth <= depth_max(size)).then_some(Link {
        base,
        depth,
        step: below.step.saturating_add(1),
    })
}

/// The link of an object on one outside that has so many deltas below it.
pub(super) fn extend_outside(below: u16, size: u64) -> Option<Link> {
    let depth = below.saturating_add(1);
    (depth <= depth_max(size)).then_some(Link {
        base: NONE,
        depth,
        step: depth,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions of one path, each of that size; a whole one where a chain may not go on.
    fn versions(kind: ObjectKind, size: u64, count: u32) -> Vec<Link> {
        let mut links = vec![Link::WHOLE];
        for before in 0..count - 1 {
            links.push(extend(&links, before, kind, size).unwrap_or(Link::WHOLE));
        }
        links
    }

    fn deepest(links: &[Link]) -> u16 {
        links.iter().map(|link| link.depth).max().unwrap()
    }

    fn whole(links: &[Link]) -> Vec<usize> {
        (0..links.len()).filter(|at| links[*at] == Link::WHOLE).collect()
    }

    #[test]
    fn small_objects_chain_to_the_limit_and_begin_again() {
        for (kind, size) in [
            (ObjectKind::Blob, LANE_SIZE_MIN - 1),
            (ObjectKind::Tree, TREE_LANE_SIZE_MIN - 1),
        ] {
            let links = versions(kind, size, 120);
            assert_eq!(deepest(&links), DEPTH_MAX);
            assert_eq!(whole(&links), [0, 51, 102]);
            assert!((1..51).all(|at| links[at].base == at as u32 - 1));
        }
    }

    #[test]
    fn chains_of_large_objects_are_bounded_by_their_bytes() {
        for size in [64 << 10, 100 << 10, 400 << 10, 1 << 20, 16 << 20] {
            let links = versions(ObjectKind::Blob, size, 400);
            let bytes = u64::from(deepest(&links)) * size;
            assert!(
                bytes <= CHAIN_BYTES_MAX.max(u64::from(DEPTH_MIN) * size),
                "{size}: {bytes}"
            );
        }
    }

    #[test]
    fn lanes_lead_far_with_few_steps() {
        let links = versions(ObjectKind::Tree, TREE_LANE_SIZE_MIN, 500);
        assert_eq!((links[16].base, links[32].base, links[48].base), (0, 16, 32));
        assert_eq!((links[15].base, links[17].base, links[33].base), (14, 16, 32));
        assert_eq!(links[32].depth, 2);
        assert_eq!(whole(&links), [0], "500 versions hang on one whole object");
        assert!(deepest(&links) <= DEPTH_MAX);
        let links = versions(ObjectKind::Blob, 1 << 20, 20);
        assert_eq!((links[4].base, links[8].base), (0, 4), "short chains have narrow lanes");
        assert!(whole(&links).len() <= 2);
    }

    #[test]
    fn outside_depth_counts() {
        assert_eq!(extend_outside(DEPTH_MAX, 10), None);
        let link = extend_outside(DEPTH_MAX - 2, 10).unwrap();
        let links = [link];
        assert_eq!(onto(&links, 0, 10).unwrap().depth, DEPTH_MAX);
        assert_eq!(onto(&[onto(&links, 0, 10).unwrap()], 0, 10), None);
        assert_eq!(extend(&links, 1, ObjectKind::Blob, 10), None, "no such version");
    }
}
