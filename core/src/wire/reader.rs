//! Reading CBOR bodies: numbered fields in ascending order, definite lengths only, every limit
//! judged before anything is copied.

use alloc::borrow::ToOwned;
use alloc::string::String;

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};

use super::{Kind, WireFault};
use crate::id::{Epoch, TransferNo};
use crate::segment::is_site_name;

/// A CBOR decoder that knows which frame it is in.
pub(super) struct Reader<'b> {
    decoder: Decoder<'b>,
    pub(super) frame: Kind,
}

/// Position in a map with numbered fields.
pub(super) struct Fields {
    left: u64,
    last: Option<u64>,
}

impl<'b> Reader<'b> {
    pub(super) fn new(frame: Kind, body: &'b [u8]) -> Reader<'b> {
        Reader { decoder: Decoder::new(body), frame }
    }

    /// Runs one call of the decoder and says where it failed.
    fn get<T>(
        &mut self,
        read: impl FnOnce(&mut Decoder<'b>) -> Result<T, Error>,
    ) -> Result<T, WireFault> {
        let at = self.decoder.position();
        read(&mut self.decoder).map_err(|_| WireFault::Cbor { frame: self.frame, at })
    }

    /// A count or length that must be given in front.
    fn definite(
        &mut self,
        read: impl FnOnce(&mut Decoder<'b>) -> Result<Option<u64>, Error>,
    ) -> Result<u64, WireFault> {
        let at = self.decoder.position();
        self.get(read)?.ok_or(WireFault::Cbor { frame: self.frame, at })
    }

    pub(super) fn fields(&mut self) -> Result<Fields, WireFault> {
        let left = self.definite(Decoder::map)?;
        Ok(Fields { left, last: None })
    }

    /// How many elements the array has that begins here.
    pub(super) fn array(&mut self, what: &'static str, limit: usize) -> Result<usize, WireFault> {
        let len = self.definite(Decoder::array)?;
        self.limit(what, len, limit as u64)?;
        Ok(usize::try_from(len).unwrap_or(limit))
    }

    pub(super) fn limit(&self, what: &'static str, len: u64, limit: u64) -> Result<(), WireFault> {
        let fault = WireFault::Limit { frame: self.frame, what, len, limit };
        if len > limit { Err(fault) } else { Ok(()) }
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireFault> {
        self.get(Decoder::u64)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireFault> {
        self.get(Decoder::u32)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireFault> {
        self.get(Decoder::u8)
    }

    pub(super) fn transfer(&mut self) -> Result<TransferNo, WireFault> {
        match self.u32()? {
            0 => Err(self.value("a transfer number", 0)),
            number => Ok(TransferNo(number)),
        }
    }

    pub(super) fn hash(&mut self) -> Result<[u8; 32], WireFault> {
        let at = self.decoder.position();
        let bytes = self.get(Decoder::bytes)?;
        bytes.try_into().map_err(|_| WireFault::Cbor { frame: self.frame, at })
    }

    pub(super) fn bytes(
        &mut self,
        what: &'static str,
        limit: usize,
    ) -> Result<&'b [u8], WireFault> {
        let bytes = self.get(Decoder::bytes)?;
        self.limit(what, bytes.len() as u64, limit as u64)?;
        Ok(bytes)
    }

    pub(super) fn str(&mut self, what: &'static str, limit: usize) -> Result<&'b str, WireFault> {
        let text = self.get(Decoder::str)?;
        self.limit(what, text.len() as u64, limit as u64)?;
        Ok(text)
    }

    pub(super) fn site(&mut self) -> Result<&'b str, WireFault> {
        let name = self.get(Decoder::str)?;
        if is_site_name(name) {
            return Ok(name);
        }
        Err(WireFault::Site { frame: self.frame, name: name.chars().take(64).collect() })
    }

    pub(super) fn owned_site(&mut self) -> Result<String, WireFault> {
        self.site().map(ToOwned::to_owned)
    }

    pub(super) fn epoch(&mut self) -> Result<Epoch, WireFault> {
        let at = self.decoder.position();
        if self.definite(Decoder::array)? != 2 {
            return Err(WireFault::Cbor { frame: self.frame, at });
        }
        Ok(Epoch { boot: self.u64()?, session: self.u64()? })
    }

    /// Whether a text begins here.
    pub(super) fn at_text(&self) -> bool {
        matches!(self.decoder.datatype(), Ok(Type::String))
    }

    /// Passes over one value, however it is nested, without allocating.
    pub(super) fn skip(&mut self) -> Result<(), WireFault> {
        let mut left: u64 = 1;
        while left > 0 {
            left -= 1;
            match self.get(|d| d.datatype())? {
                Type::Array => left = left.saturating_add(self.definite(Decoder::array)?),
                Type::Map => {
                    let pairs = self.definite(Decoder::map)?;
                    left = left.saturating_add(pairs.saturating_mul(2));
                }
                Type::Tag => {
                    self.get(Decoder::tag)?;
                    left = left.saturating_add(1);
                }
                Type::Bytes => drop(self.get(Decoder::bytes)?),
                Type::String => drop(self.get(Decoder::str)?),
                Type::ArrayIndef
                | Type::MapIndef
                | Type::BytesIndef
                | Type::StringIndef
                | Type::Break => {
                    let at = self.decoder.position();
                    return Err(WireFault::Cbor { frame: self.frame, at });
                }
                Type::Bool
                | Type::Null
                | Type::Undefined
                | Type::U8
                | Type::U16
                | Type::U32
                | Type::U64
                | Type::I8
                | Type::I16
                | Type::I32
                | Type::I64
                | Type::Int
                | Type::F16
                | Type::F32
                | Type::F64
                | Type::Simple
                | Type::Unknown(_) => self.get(Decoder::skip)?,
            }
        }
        Ok(())
    }

    /// Judges that nothing follows.
    pub(super) fn end(&self) -> Result<(), WireFault> {
        let left = self.decoder.input().len().saturating_sub(self.decoder.position());
        if left == 0 { Ok(()) } else { Err(WireFault::Trailing { frame: self.frame, left }) }
    }

    pub(super) fn value(&self, what: &'static str, value: u64) -> WireFault {
        WireFault::Value { frame: self.frame, what, value }
    }
}

impl Fields {
    /// Number of the next field; its value stands next.
    pub(super) fn next(&mut self, reader: &mut Reader<'_>) -> Result<Option<u64>, WireFault> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let field = reader.u64()?;
        if let Some(after) = self.last.filter(|last| *last >= field) {
            return Err(WireFault::Order { frame: reader.frame, field, after });
        }
        self.last = Some(field);
        Ok(Some(field))
    }
}

/// The value of a field that must be there.
pub(super) fn need<T>(frame: Kind, field: u64, value: Option<T>) -> Result<T, WireFault> {
    value.ok_or(WireFault::Missing { frame, field })
}
