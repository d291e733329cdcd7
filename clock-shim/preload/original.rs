//! The function of libc that stands behind an override.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

const ENOSYS: c_int = 38;

/// A function of libc, found by its name behind this library.
pub(crate) struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn named(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Finds the function. It is called before `main`, because dlsym(3) is not for signal handlers.
    pub(crate) fn find(&self) -> *mut c_void {
        let next = usize::MAX as *mut c_void; // RTLD_NEXT
        // On x86_64 the functions of condition variables exist twice: the older ones know another, smaller layout.
        // SAFETY: both texts end with a NUL.
        let mut found = unsafe { dlvsym(next, self.name.as_ptr(), c"GLIBC_2.3.2".as_ptr()) };
        if found.is_null() {
            found = unsafe { dlsym(next, self.name.as_ptr()) };
        }
        self.address.store(found, Relaxed);
        found
    }

    /// Calls it with as many of the arguments as it has: the others are in registers that it does not read.
    ///
    /// # Safety
    ///
    /// It must take only integers of up to 64 bits and pointers, at most four, and return an `int`.
    pub(crate) unsafe fn call(&self, arguments: [usize; 4]) -> c_int {
        let mut address = self.address.load(Relaxed);
        if address.is_null() {
            address = self.find();
        }
        if address.is_null() {
            // This libc has no such function, so whoever calls it did not get it from here.
            return ENOSYS;
        }
        // SAFETY: in the C calling convention of both processors the first arguments are in registers, one each.
        let function: extern "C" fn(usize, usize, usize, usize) -> c_int = unsafe { mem::transmute(address) };
        let [a, b, c, d] = arguments;
        function(a, b, c, d)
    }
}
