// SPDX-License-Identifier: GPL-2.0-only

//! The files of each service: `nrs/SERVICE/TUNABLE` in debugfs.
//!
//! They are a view: what they show and take is decided by [`crate::core::tunables`], which device-mapper
//! messages reach as well, where debugfs is locked down.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use crate::{
    core::{
        service::Service,
        tunables::{self, Tunable},
    },
    sys::debugfs::{Dir, File, Show, Store, Tree},
};

impl File for Tunable {
    type Data = Service;

    fn name(&self) -> &'static CStr {
        self.name
    }

    fn show(&self) -> Option<Show<Service>> {
        self.show
    }

    fn store(&self) -> Option<Store<Service>> {
        self.store
    }

    fn most(&self) -> usize {
        self.most
    }

    fn check(&self) -> Option<Store<Service>> {
        self.check
    }
}

/// The directories of all services.
struct Dirs {
    top: Arc<Dir>,
    services: KVec<Tree<Tunable>>,
}

/// The directory `nrs` with one directory per service.
///
/// Readers and writers of the files never take the mutex, so it may be held while they are waited for.
#[pin_data]
pub(super) struct Trees {
    #[pin]
    dirs: Mutex<Option<Dirs>>,
}

impl Trees {
    /// Makes the top directory.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            dirs <- new_mutex!(Some(Dirs {
                top: Arc::new(Dir::new(c"nrs", None), GFP_KERNEL)?,
                services: KVec::new(),
            }), "nrs_trees"),
        })
    }

    /// Makes the files of `service`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&self, service: &Arc<Service>) -> Result {
        let name = CString::try_from_fmt(fmt!("{}", service.name()))?;
        let mut dirs = self.dirs.lock();
        let Some(dirs) = &mut *dirs else {
            return Ok(());
        };
        dirs.services.reserve(1, GFP_KERNEL)?;
        let tree = Tree::new(
            &name,
            dirs.top.clone(),
            &tunables::TUNABLES,
            service.clone(),
        );
        dirs.services.push(tree, GFP_KERNEL)?;
        Ok(())
    }

    /// Removes the files of `service`; waits for who is reading or writing one.
    pub(super) fn remove(&self, service: &Service) {
        let mut dirs = self.dirs.lock();
        let Some(Dirs { services, .. }) = &mut *dirs else {
            return;
        };
        let index = services
            .iter()
            .position(|tree| core::ptr::eq(&**tree.data(), service));
        let tree = index.and_then(|index| services.remove(index).ok());
        drop(tree);
    }

    /// Removes all directories; none is made any more.
    pub(super) fn close(&self) {
        let dirs = self.dirs.lock().take();
        drop(dirs);
    }
}
