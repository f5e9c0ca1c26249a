//! What every bucket must do, whatever is behind it. For tests: run [`all`] over each backend; each function panics with
//! what it expected.
//!
//! Everything happens under a prefix drawn from the given entropy, and is removed at the end of a run that passed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::{Bucket, Created, Entropy, Finding, Operation, StoreError, StoreErrorKind, Swapped};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt};

/// Runs every check over `bucket`. Its options should have parts of at least 5 MiB if it is S3.
pub async fn all(bucket: &Bucket, entropy: &Entropy) {
    let directory = format!("conformance/{:032x}", entropy.bits128());
    let key = |name: &str| format!("{directory}/{name}");
    whole_payloads(bucket, &key("whole")).await;
    absent_payloads(bucket, &key("absent")).await;
    exact_ranges(bucket, &key("ranges")).await;
    create_once(bucket, &key("created")).await;
    create_race(bucket, &key("race")).await;
    create_of_own_payload(bucket, &key("own")).await;
    swap_by_version(bucket, &key("swapped")).await;
    uploads(bucket, &key("uploads")).await;
    listing(bucket, &key("listing")).await;
    bad_keys(bucket).await;
    accounting(bucket, &key("counted")).await;
    probe_agrees(bucket, entropy).await;
    clean_up(bucket, &directory).await;
}

/// What is put is got, the last put wins, and an empty payload is a payload.
pub async fn whole_payloads(bucket: &Bucket, key: &str) {
    for payload in [&b"first"[..], b"", b"another, longer"] {
        bucket.put(key, Bytes::from_static(payload)).await.unwrap();
        assert_eq!(bucket.get(key).await.unwrap(), payload);
        assert_eq!(bucket.size(key).await.unwrap(), Some(payload.len() as u64));
    }
}

/// What is not there is told as such, and may be deleted.
pub async fn absent_payloads(bucket: &Bucket, key: &str) {
    assert_eq!(bucket.get(key).await.unwrap_err().kind(), StoreErrorKind::NotFound);
    assert_eq!(
        bucket.get_range(key, 0..1).await.unwrap_err().kind(),
        StoreErrorKind::NotFound
    );
    assert_eq!(bucket.get_version(key).await.unwrap(), None);
    assert_eq!(bucket.size(key).await.unwrap(), None);
    bucket.delete(key).await.unwrap();
    bucket.put(key, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(bucket.get_range(key, 0..1).await.unwrap(), "x");
    bucket.delete(key).await.unwrap();
    assert_eq!(
        bucket.get_range(key, 0..1).await.unwrap_err().kind(),
        StoreErrorKind::NotFound
    );
}

/// Ranges give exactly their bytes; past the end is an error, not fewer bytes.
pub async fn exact_ranges(bucket: &Bucket, key: &str) {
    let payload = Bytes::from_iter((0..100_000u32).map(|n| (n % 251) as u8));
    bucket.put(key, payload.clone()).await.unwrap();
    let end = payload.len() as u64;
    let ranges = [0..1, 0..end, 17..4_112, end - 1..end, 5..5, 99..100];
    for range in &ranges {
        let got = bucket.get_range(key, range.clone()).await.unwrap();
        assert_eq!(
            got,
            payload.slice(range.start as usize..range.end as usize),
            "{range:?}"
        );
    }
    let pieces = bucket.get_ranges(key, &ranges).await.unwrap();
    for (piece, range) in pieces.iter().zip(&ranges) {
        assert_eq!(
            piece,
            &payload.slice(range.start as usize..range.end as usize),
            "{range:?}"
        );
    }
    assert_eq!(pieces.len(), ranges.len());
    for beyond in [end - 1..end + 1, end..end + 1, end + 5..end + 6, 0..u64::MAX] {
        let error = bucket.get_range(key, beyond.clone()).await.unwrap_err();
        assert!(
            matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Invalid),
            "{beyond:?}: {error}"
        );
    }
    bucket.put(key, Bytes::from_static(b"other")).await.unwrap();
    assert_eq!(
        bucket.get_range(key, 0..5).await.unwrap(),
        "other",
        "a put must not leave old ranges behind"
    );
}

/// A second create is told so and changes nothing.
pub async fn create_once(bucket: &Bucket, key: &str) {
    assert_eq!(
        bucket.create(key, Bytes::from_static(b"mine")).await.unwrap(),
        Created::Done
    );
    assert_eq!(
        bucket.create(key, Bytes::from_static(b"yours")).await.unwrap(),
        Created::Exists
    );
    assert_eq!(bucket.get(key).await.unwrap(), "mine");
}

/// Of many writers on many tasks one wins, and its payload stays.
pub async fn create_race(bucket: &Bucket, key: &str) {
    for round in 0..4 {
        let key = format!("{key}/{round}");
        let payload = |writer: usize| Bytes::from(format!("{round}-{writer}").repeat(100));
        let race = (0..16).map(|writer| {
            let (bucket, key, payload) = (bucket.clone(), key.clone(), payload(writer));
            tokio::spawn(async move { bucket.create(&key, payload).await.unwrap() })
        });
        let outcomes: Vec<Created> = join_all(race).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<usize> = (0..16).filter(|&writer| outcomes[writer] == Created::Done).collect();
        assert_eq!(winners.len(), 1, "winners {winners:?}");
        assert_eq!(bucket.get(&key).await.unwrap(), payload(winners[0]));
    }
}

/// Writing the same layer again is fine; another under its name is not.
pub async fn create_of_own_payload(bucket: &Bucket, key: &str) {
    let layer = Bytes::from(vec![1; 200_000]);
    bucket.create_payload(key, layer.clone()).await.unwrap();
    bucket.create_payload(key, layer).await.unwrap();
    for other in [vec![1; 199_999], vec![2; 200_000]] {
        let error = bucket.create_payload(key, Bytes::from(other)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Conflict);
    }
}

/// Swaps go by version, or the store says that it has none.
pub async fn swap_by_version(bucket: &Bucket, key: &str) {
    let Swapped::Done(first) = bucket.swap(key, None, Bytes::from_static(b"1")).await.unwrap() else {
        panic!("a swap of nothing into a new key was refused");
    };
    let second = match bucket.swap(key, Some(&first), Bytes::from_static(b"2")).await {
        Ok(Swapped::Done(version)) => version,
        Ok(Swapped::Stale) => panic!("a swap by the right version was refused"),
        Err(error) => return assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}"),
    };
    assert_ne!(first, second);
    assert_eq!(
        bucket.get_version(key).await.unwrap(),
        Some((Bytes::from_static(b"2"), second))
    );
    for stale in [None, Some(&first)] {
        assert_eq!(
            bucket.swap(key, stale, Bytes::from_static(b"3")).await.unwrap(),
            Swapped::Stale
        );
    }
    let vanished = format!("{key}-vanished");
    assert_eq!(
        bucket
            .swap(&vanished, Some(&first), Bytes::from_static(b"3"))
            .await
            .unwrap(),
        Swapped::Stale
    );
    assert_eq!(bucket.get(key).await.unwrap(), "2");
}

/// Uploads of any size arrive whole, appear only when finished, and not at all when given up.
pub async fn uploads(bucket: &Bucket, key: &str) {
    for (size, once) in [0, 1, 3_000_000, 20_000_000]
        .into_iter()
        .flat_map(|size| [(size, false), (size, true)])
    {
        let payload = Bytes::from_iter((0..size).map(|n: u32| (n / 7 % 253) as u8));
        let key = format!("{key}/{size}-{once}");
        let start = |key: &str| match once {
            true => bucket.upload_once(key).unwrap(),
            false => bucket.upload(key).unwrap(),
        };
        let mut upload = start(&key);
        for piece in payload.chunks(700_001) {
            upload.write(payload.slice_ref(piece)).await.unwrap();
        }
        assert_eq!(bucket.size(&key).await.unwrap(), None, "visible before it is finished");
        assert_eq!(upload.finish().await.unwrap(), u64::from(size));
        assert!(
            bucket.get(&key).await.unwrap() == payload,
            "an upload of {size} bytes differs"
        );
        for range in [0..size, size / 3..size / 2, size / 2..size / 2 + size.min(1)] {
            let wanted = &payload[range.start as usize..range.end as usize];
            let read = bucket.get_range_once(&key, range.start.into()..range.end.into()).await;
            assert!(read.unwrap() == wanted, "{range:?} of {size} bytes");
        }
        let beyond = bucket.get_range_once(&key, 0..u64::from(size) + 1).await;
        // Of an empty payload no range can be had; what stores say to that is not always HTTP.
        let is_short = matches!(beyond, Err(StoreError::Short { .. }));
        assert!(is_short || size == 0 && beyond.is_err(), "{beyond:?}");
        let given_up = format!("{key}-given-up");
        let mut upload = start(&given_up);
        upload.write(payload).await.unwrap();
        upload.abort().await.unwrap();
        assert_eq!(bucket.size(&given_up).await.unwrap(), None);
    }
}

/// A listing has every key under its prefix, by whole segments, with sizes; also beyond a page.
pub async fn listing(bucket: &Bucket, key: &str) {
    let names: Vec<String> = (0..1_050)
        .map(|n| format!("{key}/a/{n:04}"))
        .chain([format!("{key}/ab")])
        .collect();
    let writes = names.iter().map(|name| bucket.put(name, Bytes::from(name.clone())));
    stream::iter(writes)
        .buffer_unordered(16)
        .for_each(|written| async { written.unwrap() })
        .await;
    let listed = bucket.list_all(&format!("{key}/a")).await.unwrap();
    let found: Vec<(&str, u64)> = listed.iter().map(|listed| (listed.key.as_str(), listed.size)).collect();
    let wanted: Vec<(&str, u64)> = names[..1_050]
        .iter()
        .map(|name| (name.as_str(), name.len() as u64))
        .collect();
    assert_eq!(found, wanted);
    assert_eq!(bucket.list_all(&format!("{key}/none")).await.unwrap(), []);
}

/// What is no key is refused before anything is asked.
pub async fn bad_keys(bucket: &Bucket) {
    let before = bucket.counters();
    for key in ["", "/", "/a", "a/", "a//b", "a/../b", "./a", ".."] {
        let kind = bucket.put(key, Bytes::new()).await.unwrap_err().kind();
        assert_eq!(kind, StoreErrorKind::Invalid, "{key}");
        assert_eq!(
            bucket.get(key).await.unwrap_err().kind(),
            StoreErrorKind::Invalid,
            "{key}"
        );
    }
    assert_eq!(bucket.counters(), before);
}

/// Requests and bytes are counted, each under its own name. Nothing else may use the bucket's handles meanwhile.
pub async fn accounting(bucket: &Bucket, key: &str) {
    let before = bucket.counters();
    bucket.put(key, Bytes::from_static(b"12345")).await.unwrap();
    assert_eq!(
        bucket.create(key, Bytes::from_static(b"123")).await.unwrap(),
        Created::Exists
    );
    bucket.get(key).await.unwrap();
    bucket.get_range(key, 1..3).await.unwrap();
    bucket.size(key).await.unwrap();
    bucket.delete(key).await.unwrap();
    let spent = bucket.counters().since(&before);
    let spent_on = |operation| {
        let tally = spent.of(operation);
        (tally.requests, tally.bytes_in, tally.bytes_out, tally.errors)
    };
    assert_eq!(spent_on(Operation::Put), (1, 0, 5, 0));
    assert_eq!(spent_on(Operation::Create), (1, 0, 3, 0));
    assert_eq!(spent_on(Operation::Get), (1, 5, 0, 0));
    assert_eq!(spent_on(Operation::GetRange), (1, 2, 0, 0));
    assert_eq!(spent_on(Operation::Head), (1, 0, 0, 0));
    assert_eq!(spent_on(Operation::Delete), (1, 0, 0, 0));
    assert_eq!(spent.total().requests, 6);
}

/// The probe finds nothing broken, and leaves nothing behind.
pub async fn probe_agrees(bucket: &Bucket, entropy: &Entropy) {
    let report = bucket.probe(entropy).await;
    assert!(report.safe_for_layers() && report.safe_for_bucket_ledger(), "{report}");
    let broken = report
        .findings()
        .iter()
        .any(|(_, finding)| matches!(finding, Finding::Broken(_)));
    assert!(!broken, "{report}");
    assert_eq!(bucket.list_all("probe").await.unwrap(), [], "the probe cleans up");
}

async fn clean_up(bucket: &Bucket, directory: &str) {
    let keys = bucket.list_all(directory).await.unwrap();
    stream::iter(&keys)
        .map(|listed| bucket.delete(&listed.key))
        .buffer_unordered(16)
        .for_each(|deleted| async { deleted.unwrap() })
        .await;
    assert_eq!(bucket.list_all(directory).await.unwrap(), []);
}
