// SPDX-License-Identifier: GPL-2.0-only

//! Files of each service: `nrs/SERVICE/PARAMETER` in debugfs.
//!
//! [`crate::engine::parameters`] defines the content and the accepted values. Device-mapper
//! messages reach the same parameters if debugfs is locked down.

use core::fmt::Write;

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use crate::{
    engine::{parameters, service::Service},
    sched::parameters::{all, Parameter},
    sys::debugfs::{Dir, FileDirectory, TableFile},
};

impl TableFile for Parameter {
    type Data = Service;

    fn name(&self) -> &'static CStr {
        self.name
    }

    fn reads(&self) -> bool {
        self.access.reads()
    }

    fn writes(&self) -> bool {
        self.access.writes()
    }

    fn most(&self) -> usize {
        parameters::most(self)
    }

    fn takes_pieces(&self) -> bool {
        parameters::takes_lines(self)
    }

    fn show(&self, service: &Service, out: &mut dyn Write) -> Result {
        parameters::load(service, self, out)
    }

    fn store(&self, service: &Service, text: &str) -> Result {
        let stored = parameters::store(service, self, text);
        stored.map_err(|refused| refused.report(service.name()))
    }

    fn check(&self, service: &Service, text: &str) -> Result {
        let checked = parameters::check(service, self, text);
        checked.map_err(|refused| refused.report(service.name()))
    }
}

/// Directories of all services.
struct Dirs {
    top: Arc<Dir>,
    services: KVec<FileDirectory<Parameter>>,
}

/// Directory `nrs` with one directory per service.
///
/// Readers and writers of the files never take the mutex, so it may be held while waiting for them.
#[pin_data]
pub(super) struct Trees {
    #[pin]
    dirs: Mutex<Option<Dirs>>,
}

impl Trees {
    /// Creates the top directory.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            dirs <- new_mutex!(Some(Dirs {
                top: Arc::new(Dir::new(c"nrs", None), GFP_KERNEL)?,
                services: KVec::new(),
            }), "nrs_trees"),
        })
    }

    /// Creates the files of `service`.
    pub(super) fn add(&self, service: &Arc<Service>) -> Result {
        let name = CString::try_from_fmt(fmt!("{}", service.name()))?;
        let mut dirs = self.dirs.lock();
        let Some(dirs) = &mut *dirs else {
            return Ok(());
        };
        dirs.services.reserve(1, GFP_KERNEL)?;
        let tree = FileDirectory::new(&name, dirs.top.clone(), all(), service.clone());
        dirs.services.push(tree, GFP_KERNEL)?;
        Ok(())
    }

    /// Removes the files of `service`; waits for their readers and writers.
    pub(super) fn remove(&self, service: &Service) {
        let mut dirs = self.dirs.lock();
        let Some(Dirs { services, .. }) = &mut *dirs else {
            return;
        };
        let index = services
            .iter()
            .position(|tree| core::ptr::eq(&**tree.data(), service));
        let tree = index.and_then(|index| services.remove(index).ok());
        drop(dirs);
        drop(tree);
    }

    /// Removes all directories and prevents the creation of others.
    pub(super) fn close(&self) {
        let dirs = self.dirs.lock().take();
        drop(dirs);
    }
}
