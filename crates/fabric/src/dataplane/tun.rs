//! The interface by which packets of this cluster come and go, as super-packets: `/dev/net/tun`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use crate::packet::{Offload, Train};

/// A TUN interface. It is gone when this is.
#[derive(Debug)]
pub struct Tun {
    file: File,
    with_datagrams: bool,
}

impl Tun {
    /// Makes the interface, in the network namespace of the calling thread. It has no address, and is down.
    pub fn open(name: &str) -> io::Result<Self> {
        let non_blocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(non_blocking).open("/dev/net/tun")?;
        kernel::make(&file, name)?;
        kernel::set_header_size(&file, Offload::LENGTH)?;
        // Super-packets of UDP are known to the kernel since 6.2.
        let with_datagrams = kernel::offload(&file, kernel::TCP | kernel::UDP).is_ok();
        if !with_datagrams {
            kernel::offload(&file, kernel::TCP)?;
        }
        Ok(Self { file, with_datagrams })
    }

    /// Whether the kernel knows super-packets of UDP.
    pub(super) fn with_datagrams(&self) -> bool {
        self.with_datagrams
    }

    /// Reads a packet with what the kernel says of it, if there is one.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Writes packets that lie in this buffer.
    pub(super) fn write(&self, bytes: &[u8], train: &Train) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); Train::MOST_PARTS + 1];
        slices[0] = IoSlice::new(train.offload());
        let parts = train.parts();
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(bytes.get(part.clone()).unwrap_or_default());
        }
        let count = (parts.len() + 1).min(slices.len());
        rustix::io::writev(&self.file, slices.get(..count).unwrap_or_default())?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What the kernel is asked for.
mod kernel {
    #![allow(unsafe_code, reason = "no crate that is small and well kept makes these three calls")]

    use std::ffi::c_int;
    use std::fs::File;
    use std::io;

    use rustix::ioctl::{IntegerSetter, Setter, Updater, ioctl, opcode};

    /// Checksums and super-packets of TCP are left to us.
    pub(super) const TCP: usize = 1 | 2 | 4;
    /// Those of UDP, too.
    pub(super) const UDP: usize = 0x20 | 0x40;
    /// IP packets, without a header of TUN's own, with that of `virtio_net`, and an interface that is new.
    const KIND: u16 = 0x0001 | 0x1000 | 0x4000 | 0x8000;
    const NAME: usize = 16;

    /// `struct ifreq`.
    #[repr(C)]
    struct Request {
        name: [u8; NAME],
        flags: u16,
        rest: [u8; 22],
    }

    pub(super) fn make(file: &File, name: &str) -> io::Result<()> {
        const SET_INTERFACE: u32 = opcode::write::<c_int>(b'T', 202);
        let mut request = Request { name: [0; NAME], flags: KIND, rest: [0; 22] };
        // The last byte stays zero.
        let place = request.name.get_mut(..name.len()).filter(|_| name.len() < NAME);
        let place =
            place.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name is too long"))?;
        place.copy_from_slice(name.as_bytes());
        // SAFETY: TUNSETIFF takes a `struct ifreq`, of which `Request` has the size and layout, and may write to it.
        Ok(unsafe { ioctl(file, Updater::<SET_INTERFACE, Request>::new(&mut request)) }?)
    }

    pub(super) fn set_header_size(file: &File, size: usize) -> io::Result<()> {
        const SET_HEADER_SIZE: u32 = opcode::write::<c_int>(b'T', 216);
        let size = c_int::try_from(size).map_err(io::Error::other)?;
        // SAFETY: TUNSETVNETHDRSZ reads one `int`.
        Ok(unsafe { ioctl(file, Setter::<SET_HEADER_SIZE, c_int>::new(size)) }?)
    }

    pub(super) fn offload(file: &File, what: usize) -> io::Result<()> {
        const SET_OFFLOAD: u32 = opcode::write::<c_int>(b'T', 208);
        // SAFETY: TUNSETOFFLOAD takes its argument as a number.
        Ok(unsafe { ioctl(file, IntegerSetter::<SET_OFFLOAD>::new_usize(what)) }?)
    }
}
