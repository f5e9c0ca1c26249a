//! Many objects in the order of their ids, where there are numbers for them and ids have to be looked up.

use crate::ObjectId;

/// A number, and the leading bits of the id that it stands for: eight bytes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdKey(u64);

impl IdKey {
    /// The key of `number`, which stands for `id`.
    pub fn new(id: &ObjectId, number: u32) -> Self {
        let leading = id.as_bytes().first_chunk().copied().map_or(0, u32::from_be_bytes);
        Self(u64::from(leading) << 32 | u64::from(number))
    }

    /// The first 32 bits of the id, as a number.
    pub fn leading(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }

    /// The number.
    pub fn number(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }
}

/// Sorts by id, and where ids are the same by number. `id` gives the id of a number: seldom asked, since leading bits nearly always
/// decide.
pub fn sort_by_id<I: Ord>(keys: &mut [IdKey], id: impl Fn(u32) -> I) {
    keys.sort_unstable_by(|left, right| {
        let by_bits = left.leading().cmp(&right.leading());
        by_bits.then_with(|| {
            let (left, right) = (left.number(), right.number());
            id(left).cmp(&id(right)).then(left.cmp(&right))
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObjectFormat;

    #[test]
    fn ids_decide_then_numbers() {
        let id = |bytes: [u8; 2]| {
            let mut whole = [7; 20];
            (whole[3], whole[4]) = (bytes[0], bytes[1]);
            ObjectId::from_bytes(ObjectFormat::Sha1, &whole).unwrap()
        };
        let ids = [[2, 9], [1, 9], [2, 1], [2, 9], [255, 0]].map(id);
        let key = |number: u32| IdKey::new(&ids[number as usize], number);
        let mut keys: Vec<IdKey> = (0..5).rev().map(key).collect();
        sort_by_id(&mut keys, |number| ids[number as usize]);
        let numbers: Vec<u32> = keys.iter().map(|key| key.number()).collect();
        assert_eq!(numbers, [1, 2, 0, 3, 4]);
        assert_eq!(keys[0].leading(), 0x0707_0701);
    }
}
