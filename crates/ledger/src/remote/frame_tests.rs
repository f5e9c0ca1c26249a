//! Frames as they are written and read back, and the bounds on what is read.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    entry_bytes_max: 1 << 14,
    inline_bytes_max: 1 << 12,
};

fn entry() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn base() -> impl Strategy<Value = Base> {
    any::<(u64, Option<u64>)>().prop_map(|(first, checkpoint)| Base { first, checkpoint })
}

fn request() -> impl Strategy<Value = Request> {
    let log = || any::<u128>().prop_map(LogId);
    prop_oneof![
        (log(), any::<u64>(), entry()).prop_map(|(log, number, entry)| Request::Append { log, number, entry }),
        (log(), any::<(u64, u64)>()).prop_map(|(log, (from, bytes_max))| Request::Read { log, from, bytes_max }),
        log().prop_map(|log| Request::End { log }),
        log().prop_map(|log| Request::Base { log }),
        (log(), base()).prop_map(|(log, base)| Request::Advance { log, base }),
        (log(), any::<u64>()).prop_map(|(log, than)| Request::Changed { log, than }),
        log().prop_map(|log| Request::Drop { log }),
        Just(Request::Cancel),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Appended(Appended::Done)),
        Just(Answer::Appended(Appended::Taken)),
        proptest::collection::vec((any::<u64>(), entry()), 0..4).prop_map(Answer::Entries),
        any::<u64>().prop_map(Answer::Number),
        base().prop_map(Answer::Base),
        Just(Answer::Done),
    ]
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(id: u64, request in request()) {
        let frame = encode_request(id, &request).slice(4..);
        prop_assert_eq!(decode_request(frame).unwrap(), (id, request));
    }

    #[test]
    fn answers_are_read_as_they_were_written(id: u64, answer in answer()) {
        let frame = encode_answer(id, &answer).slice(4..);
        let (read_id, read) = decode_answer(frame).unwrap();
        prop_assert_eq!((read_id, format!("{read:?}")), (id, format!("{answer:?}")));
    }

    #[test]
    fn a_frame_cut_short_or_too_long_is_refused(request in request(), cut in 0_usize..16) {
        if matches!(request, Request::Append { .. }) {
            return Ok(());
        }
        let mut frame = encode_request(1, &request).slice(4..).to_vec();
        frame.push(0);
        prop_assert!(decode_request(Bytes::from(frame.clone())).is_err());
        frame.truncate(frame.len().saturating_sub(2 + cut));
        prop_assert!(decode_request(Bytes::from(frame)).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_written_as_they_were(bytes in proptest::collection::vec(any::<u8>(), 0..60), code in 0_u8..10) {
        let mut bytes = bytes;
        if let Some(at) = bytes.get_mut(8) {
            *at = code;
        }
        check_frame(&Bytes::from(bytes));
    }
}

#[test]
fn errors_that_callers_tell_apart_travel_whole() {
    let log = LogId(7);
    let first = 4;
    let errors = [
        LedgerError::Gap { log, end: 1, number: 2 },
        LedgerError::Gone { log, first, number: 2 },
        LedgerError::Dropped { log },
        LedgerError::TooLarge { bytes: 9, bytes_max: 8 },
    ];
    for error in errors {
        let frame = encode_answer(3, &Answer::Failed(error.clone())).slice(4..);
        match decode_answer(frame).unwrap() {
            (3, Answer::Failed(read)) => assert_eq!(format!("{read:?}"), format!("{error:?}")),
            other => panic!("{error} is read as {other:?}"),
        }
    }
}

async fn read(length: u32, bytes: usize) -> Result<Option<Bytes>, LedgerError> {
    let mut wire = length.to_le_bytes().to_vec();
    wire.resize(4 + bytes, 0);
    read_frame(&mut &wire[..], frame_bytes_max(LIMITS)).await
}

/// The bound is checked before anything is allocated or waited for.
#[tokio::test]
async fn a_frame_over_the_bound_is_refused() {
    let max = u32::try_from(frame_bytes_max(LIMITS)).unwrap();
    for length in [0, 1, max - 1, max] {
        let frame = read(length, length as usize).await.unwrap().unwrap();
        assert_eq!(frame.len(), length as usize);
    }
    for length in [max + 1, u32::MAX] {
        let refused = read(length, 0).await;
        assert!(matches!(refused, Err(LedgerError::Protocol { .. })), "{refused:?}");
    }
    let cut = read(10, 9).await;
    assert!(matches!(cut, Err(LedgerError::Unavailable { .. })), "{cut:?}");
}

#[tokio::test]
async fn limits_over_the_bound_are_refused() {
    for (entry, accepted) in [
        (ENTRY_BYTES_LIMIT, true),
        (ENTRY_BYTES_LIMIT + 1, false),
        (u64::MAX, false),
    ] {
        let wire = [entry.to_le_bytes(), 5_u64.to_le_bytes()].concat();
        assert_eq!(read_limits(&mut &wire[..]).await.is_ok(), accepted, "{entry}");
    }
}

/// What a server reads of a store's largest entries and its smallest, a client takes.
#[test]
fn every_answer_of_a_read_is_within_the_bound() {
    let sizes = [
        0,
        1,
        100,
        LIMITS.entry_bytes_max,
        READ_BYTES_MAX - ENTRY_PREFIX_LEN,
        2 * READ_BYTES_MAX,
    ];
    for size in sizes {
        let entry = Bytes::from(vec![0; size]);
        let count = READ_BYTES_MAX / (size + ENTRY_PREFIX_LEN) + 2;
        let entries = entries_of_one_answer((0..count as u64).map(|number| (number, entry.clone())).collect());
        assert_eq!(entries.len(), (count - 2).max(1), "{size}");
        let limits = Limits {
            entry_bytes_max: LIMITS.entry_bytes_max.max(size),
            ..LIMITS
        };
        assert!(
            encode_answer(1, &Answer::Entries(entries)).len() - 4 <= frame_bytes_max(limits),
            "{size}"
        );
    }
}
