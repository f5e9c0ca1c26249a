//! v0 requests: wants with capabilities, then haves (gitprotocol-pack, `Packfile Negotiation`).
