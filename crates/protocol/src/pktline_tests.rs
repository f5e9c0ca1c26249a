use proptest::prelude::*;

use super::*;

fn decode_all(chunks: &[&[u8]]) -> Result<Vec<Packet>, ProtocolError> {
    let mut decoder = Decoder::new();
    let mut packets = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(packet) = decoder.poll()? {
            packets.push(packet);
        }
    }
    decoder.finish()?;
    Ok(packets)
}

#[test]
fn special_and_empty_packets() {
    let packets = decode_all(&[b"00000001000200040005a0008ab\n\0"]).unwrap();
    let data = |bytes: &'static [u8]| Packet::Data(Bytes::from_static(bytes));
    assert_eq!(
        packets,
        [
            Packet::Flush,
            Packet::Delim,
            Packet::ResponseEnd,
            data(b""),
            data(b"a"),
            data(b"ab\n\0")
        ]
    );
}

#[test]
fn lengths_at_below_and_above_the_limits() {
    for (wire, message) in [
        (&b"0003"[..], "protocol error: bad line length 3"),
        (b"fff1", "protocol error: bad line length 65521"),
        (b"ffff", "protocol error: bad line length 65535"),
        (b"00g4", "protocol error: bad line length character: 00g4"),
        (b"+004", "protocol error: bad line length character: +004"),
        (b" 004", "protocol error: bad line length character:  004"),
        (
            b"\0\0\0\0",
            "protocol error: bad line length character: \\u{0}\\u{0}\\u{0}\\u{0}",
        ),
    ] {
        assert_eq!(decode_all(&[wire]).unwrap_err().to_string(), message);
    }
    let mut largest = b"fff0".to_vec();
    largest.resize(PACKET_MAX, b'x');
    assert_eq!(
        decode_all(&[&largest]).unwrap(),
        [Packet::Data(largest[4..].to_vec().into())]
    );
    assert_eq!(decode_all(&[b"FFF0".as_slice(), &largest[4..]]).unwrap().len(), 1);
}

#[test]
fn a_cut_packet_is_noticed_at_the_end() {
    for cut in [&b"0"[..], b"000", b"0008abc"] {
        assert_eq!(decode_all(&[b"0000", cut]), Err(ProtocolError::Truncated));
    }
    assert_eq!(decode_all(&[]), Ok(vec![]));
}

#[test]
fn the_rest_is_what_follows_the_last_packet_taken() {
    let mut decoder = Decoder::new();
    decoder.push(b"0005a0000PACK");
    decoder.poll().unwrap();
    assert_eq!(decoder.poll(), Ok(Some(Packet::Flush)));
    assert_eq!(decoder.into_rest(), b"PACK"[..]);
}

#[test]
fn nothing_longer_than_a_packet_is_written() {
    for size in [DATA_MAX - 1, DATA_MAX, DATA_MAX + 1, 1 << 20] {
        let mut out = Vec::new();
        encode(&mut out, &[&vec![b'a'; size - 3], b"bcd"]);
        assert_eq!(out.len(), LENGTH_DIGITS + size.min(DATA_MAX));
        assert_eq!(decode_all(&[&out]).unwrap().len(), 1);
    }
}

#[test]
fn error_packets_are_one_line_of_text() {
    let mut out = Vec::new();
    encode_error(&mut out, "no\nsuch\x1bthing");
    assert_eq!(out, b"0015ERR no such thing");
}

#[test]
fn one_line_feed_is_taken_off() {
    assert_eq!(text(b"a\n\n"), b"a\n");
    assert_eq!(text(b"a"), b"a");
    assert_eq!(text(b"\n"), b"");
}

fn packet() -> impl Strategy<Value = Packet> {
    prop_oneof![
        Just(Packet::Flush),
        Just(Packet::Delim),
        Just(Packet::ResponseEnd),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|data| Packet::Data(data.into())),
    ]
}

proptest! {
    #[test]
    fn packets_round_trip_however_the_stream_is_cut(
        packets in proptest::collection::vec(packet(), 0..20),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut wire = Vec::new();
        packets.iter().for_each(|packet| packet.encode(&mut wire));
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len() + 1)).collect();
        cuts.extend([0, wire.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &wire[pair[0]..pair[1]]).collect();
        prop_assert_eq!(decode_all(&chunks).unwrap(), packets);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_all(&[&bytes]);
    }
}
