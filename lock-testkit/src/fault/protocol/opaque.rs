use std::io;

use bytes::BytesMut;

use super::{Frame, Part, Protocol, Reply};
use crate::fault::Direction;

/// Bytes of which nothing is known.
#[derive(Debug)]
pub(super) struct Opaque;

impl<T> Protocol<T> for Opaque {
    fn split(&mut self, _direction: Direction, received: &mut BytesMut) -> io::Result<Option<Frame>> {
        let bytes = received.split().freeze();
        Ok((!bytes.is_empty()).then_some(Frame { lane: 0, bytes, part: Part::Other }))
    }

    fn asked(&mut self, _frame: &Frame, _tag: T) {}

    fn answered(&mut self, _frame: &Frame) -> io::Result<Reply<T>> {
        Ok(Reply::Further)
    }
}
