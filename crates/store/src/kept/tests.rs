use super::*;
use bytes::Bytes;
use proptest::prelude::*;

const NAME: KeptName = KeptName {
    family: [1; 8],
    digest: [2; 32],
};

fn named(number: u8) -> KeptName {
    KeptName {
        family: [number % 2; 8],
        digest: [number; 32],
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

fn write(files: &KeptFiles, name: KeptName, content: &[u8], attachment: &[u8]) {
    let mut draft = files.begin(name, content.len() as u64).unwrap();
    content
        .chunks(PIECE_BYTES)
        .for_each(|piece| draft.append(piece).unwrap());
    draft.finish(42, attachment).unwrap();
}

fn read(file: &KeptFile) -> Option<Vec<u8>> {
    let pieces: Option<Vec<Bytes>> = (0..file.pieces()).map(|number| file.piece(number)).collect();
    Some(pieces?.concat())
}

fn open(directory: &tempfile::TempDir, bytes_max: u64) -> KeptFiles {
    KeptFiles::open(directory.path(), bytes_max).unwrap()
}

fn names_in(directory: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_file_is_read_while_it_is_written_and_in_the_next_run() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 64 << 20);
    let content = content(PIECE_BYTES + 5);
    let mut draft = files.begin(NAME, content.len() as u64).unwrap();
    draft.append(&content[..PIECE_BYTES]).unwrap();
    let follower = Arc::clone(draft.file());
    assert_eq!(read(&follower).unwrap(), &content[..PIECE_BYTES]);
    assert!(files.find(&NAME).is_none() && !files.has(&NAME));
    draft.append(&content[PIECE_BYTES..]).unwrap();
    draft.finish(42, b"beside").unwrap();
    assert_eq!(read(&follower).unwrap(), content);
    for files in [files, open(&directory, 64 << 20)] {
        let found = files.find(&NAME).unwrap();
        assert_eq!((found.len(), found.note()), (content.len() as u64, 42));
        assert_eq!(
            (read(&found).unwrap(), &found.attachment()[..]),
            (content.clone(), &b"beside"[..])
        );
        let size = fs::metadata(directory.path().join(NAME.file_name())).unwrap().len();
        assert_eq!((files.counters().files, files.counters().bytes), (1, size));
    }
}

#[test]
fn a_draft_that_is_dropped_was_never_there() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 64 << 20);
    let mut draft = files.begin(NAME, 100).unwrap();
    draft.append(b"some").unwrap();
    assert_eq!(files.counters().bytes, 100);
    drop(draft);
    assert_eq!((names_in(&directory), files.counters().bytes), (Vec::new(), 0));
}

/// What is remembered of a file's content must not be taken for another's.
#[test]
fn a_file_made_again_is_another() {
    let directory = tempfile::tempdir().unwrap();
    write(&open(&directory, 64 << 20), NAME, b"first", b"");
    let files = open(&directory, 64 << 20);
    let first = files.find(&NAME).unwrap();
    assert_eq!(files.find(&NAME).unwrap().serial(), first.serial());
    write(&files, NAME, b"other", b"");
    let second = files.find(&NAME).unwrap();
    assert_ne!(second.serial(), first.serial());
    assert_eq!(
        (read(&first).unwrap(), read(&second).unwrap()),
        (b"first".to_vec(), b"other".to_vec())
    );
    assert_eq!(files.counters().files, 1);
}

#[test]
fn what_is_no_file_of_ours_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    write(&open(&directory, 64 << 20), NAME, b"content", b"");
    for name in ["0.tmp", "notes", "zz-11.kept"] {
        fs::write(directory.path().join(name), "x").unwrap();
    }
    let files = open(&directory, 64 << 20);
    assert_eq!(names_in(&directory), [NAME.file_name()]);
    assert!(files.find(&NAME).is_some());
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let directory = tempfile::tempdir().unwrap();
    write(&open(&directory, 64 << 20), NAME, b"the content", b"attached");
    let path = directory.path().join(NAME.file_name());
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&path, &changed).unwrap();
        let files = open(&directory, 64 << 20);
        assert!(files.find(&NAME).is_none(), "byte {at}");
        assert!(!path.exists() && files.counters().corrupt == 1);
    }
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(open(&directory, 64 << 20).find(&NAME).is_none(), "{len} bytes");
    }
    let other = named(7);
    fs::write(directory.path().join(other.file_name()), &whole).unwrap();
    assert!(open(&directory, 64 << 20).find(&other).is_none());
}

#[test]
fn a_file_damaged_while_it_is_read_ends_there() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 64 << 20);
    write(&files, NAME, &content(2 * PIECE_BYTES), b"");
    let found = files.find(&NAME).unwrap();
    let path = directory.path().join(NAME.file_name());
    let mut bytes = fs::read(&path).unwrap();
    bytes[PIECE_BYTES + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(found.piece(0).is_some() && found.piece(1).is_none());
    assert!(!files.has(&NAME) && !path.exists());
}

#[test]
fn the_longest_unused_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 4000);
    for number in 0..4 {
        write(&files, named(number), &[number; 800], b"");
    }
    assert!(files.find(&named(0)).is_some());
    write(&files, named(4), &[4; 800], b"");
    let there: Vec<u8> = (0..5).filter(|number| files.has(&named(*number))).collect();
    assert_eq!((there, files.counters().evicted), (vec![0, 2, 3, 4], 1));
    assert_eq!(names_in(&directory).len(), 4);
    assert!(files.counters().bytes <= 4000);
    // Family 0 has 0, 2 and 4; the last to be used is 4.
    assert_eq!(files.find_kin([0; 8]).unwrap().name(), &named(4));
    assert_eq!(files.find_kin([1; 8]).unwrap().name(), &named(3));
    assert!(files.find_kin([9; 8]).is_none());
    let smaller = open(&directory, 2000);
    assert!(smaller.counters().bytes <= 2000 && names_in(&directory).len() == 2);
}

#[test]
fn a_file_takes_no_more_than_its_part_and_what_it_announced() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 4000);
    assert!(files.begin(NAME, 1001).is_none());
    let drafts: Vec<Draft> = (0..5).filter_map(|number| files.begin(named(number), 1000)).collect();
    assert_eq!(drafts.len(), 4);
    drop(drafts);
    let mut draft = files.begin(NAME, 1000).unwrap();
    assert!(draft.append(&[0; 1001]).is_err());
    // Somebody wrote what does not fit: the disk is left alone for a while.
    let refused = (0..BEGINS_AFTER_FAILURE)
        .filter(|_| files.begin(NAME, 10).is_none())
        .count();
    assert_eq!(refused as u64, BEGINS_AFTER_FAILURE);
    assert!(files.begin(NAME, 10).is_some());
}

proptest! {
    #[test]
    fn names_are_read_as_they_are_written(family: [u8; 8], digest: [u8; 32]) {
        let name = KeptName { family, digest };
        prop_assert_eq!(KeptName::parse(&name.file_name()), Some(name));
    }

    #[test]
    fn no_other_text_is_a_name(text in "[0-9a-fA-F-]{0,90}(\\.kept)?") {
        if let Some(name) = KeptName::parse(&text) {
            prop_assert_eq!(name.file_name(), text);
        }
    }
}

#[test]
fn all_who_read_a_file_have_the_same_one() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 64 << 20);
    write(&files, NAME, &content(100), b"beside");
    let (one, other) = (files.find(&NAME).unwrap(), files.find(&NAME).unwrap());
    assert!(Arc::ptr_eq(&one, &other));
    let files = open(&directory, 64 << 20);
    let found: Vec<_> = std::thread::scope(|scope| {
        let finding: Vec<_> = (0..8).map(|_| scope.spawn(|| files.find(&NAME).unwrap())).collect();
        finding.into_iter().map(|found| found.join().unwrap()).collect()
    });
    assert!(found.iter().all(|file| Arc::ptr_eq(file, &found[0])));
}

#[test]
fn what_is_read_counts_until_its_readers_have_gone() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 40_000);
    for number in 0..4 {
        write(&files, named(number), &content(9_000), b"");
    }
    let before = files.counters().bytes;
    let read: Vec<_> = (0..4).map(|number| files.find(&named(number)).unwrap()).collect();
    assert!(files.begin(named(9), 9_000).is_none(), "all of them are being read");
    assert_eq!((files.counters().files, files.counters().bytes), (4, before));
    drop(read);
    assert!(files.begin(named(9), 9_000).is_some());
    // One that is made again leaves the directory, but not the disk.
    let files = open(&directory, 40_000);
    let first = files.find(&named(3)).unwrap();
    let before = files.counters().bytes;
    write(&files, named(3), &content(1_000), b"");
    assert!(files.counters().bytes > before);
    drop(first);
    assert!(files.counters().bytes < before);
}

#[test]
fn damage_to_a_file_that_was_replaced_takes_the_new_one_out_of_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let files = open(&directory, 64 << 20);
    write(&files, NAME, &content(1_000), b"");
    let old = files.find(&NAME).unwrap();
    let inode = fs::File::options()
        .write(true)
        .open(directory.path().join(NAME.file_name()))
        .unwrap();
    write(&files, NAME, &content(2_000), b"");
    std::os::unix::fs::FileExt::write_all_at(&inode, b"damage", 10).unwrap();
    assert!(old.piece(0).is_none());
    assert_eq!(read(&files.find(&NAME).unwrap()).unwrap(), content(2_000));
}
