//! A controller that leads: it loads its service, flushes, changes definitions, and leaves in order or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch as flag;

use super::super::leadership::{Beats, Kept, leave as leave_log};
use super::super::standby::{Before, Taken};
use super::groups;
use super::judge::Judge;
use super::link::Life;
use super::machine::{Role, crash, stand};
use super::streams;
use super::world::{MS, SECOND, World};
use crate::audit::Actor;
use crate::service::{Service, ServiceConfig, Succession};
use crate::store::StoreError;
use crate::store::replicated::ReplicatedStore;

pub(super) struct Leads {
    began: Before,
    store: Arc<ReplicatedStore>,
    service: Arc<Service>,
    over: flag::Receiver<bool>,
    flush_at: u64,
    /// It is stopping in order, and has saved its leases, or not.
    saved: bool,
}

/// What a member does with a log that it took.
pub(super) fn load(world: &Arc<World>, at: usize, life: &Life, instance: u64, taken: Taken) -> (Role, u64) {
    let machine = &world.machines[at];
    let (store, began) = (Arc::new(taken.store), Before { instance, silent: taken.silent });
    world.judge.lock().unwrap().taken(store.epoch());
    if !life.load(Ordering::Relaxed) {
        return (Role::Down, 0);
    }
    let clock = machine.clock();
    let (over, is_over) = flag::channel(false);
    let kept = Arc::new(Kept::new(world.halts.then_some(machine.fence)));
    {
        let beats = Beats::new(Arc::clone(&store), clock.clone(), machine.fence, Arc::clone(&kept), over);
        machine.lock().begin_leadership(beats, world.now());
    }
    let config = ServiceConfig {
        fence: Some(machine.fence),
        instance: Some(instance),
        succession: Succession::Cluster { silent: taken.silent },
        ..ServiceConfig::default()
    };
    let loaded = Service::load_with(Arc::clone(&store) as _, config, clock, taken.kept);
    if !life.load(Ordering::Relaxed) {
        return (Role::Down, 0);
    }
    match loaded {
        Ok(service) => {
            let service = Arc::new(service);
            kept.open(&service);
            machine.lock().speaks = Some((store.epoch(), Arc::clone(&service)));
            Judge::loaded(world, &store, &service);
            let leads = Leads { began, store, service, over: is_over, flush_at: 0, saved: false };
            (Role::Leads(leads), 0)
        }
        Err(error) => {
            explained(world, &error);
            machine.lock().end_leadership();
            if store.has_ended() {
                return stand(world, at, life, Some(began));
            }
            // The process ends, and is started again.
            (Role::Down, 200 * MS)
        }
    }
}

fn explained(world: &World, error: &StoreError) {
    let explained =
        matches!(error, StoreError::Shared { .. } | StoreError::Deposed { .. } | StoreError::Belated);
    assert!(explained, "seed {}: {error}", world.seed);
}

pub(super) fn lead(world: &Arc<World>, at: usize, life: &Life, mut leads: Leads) -> (Role, u64) {
    let machine = &world.machines[at];
    if leads.saved {
        return leave(world, at, leads);
    }
    if *leads.over.borrow() {
        machine.lock().end_leadership();
        return stand(world, at, life, Some(leads.began));
    }
    if machine.lock().is_to_stop {
        // Whether that is heard or not, it stops.
        let _ = leads.store.announce();
        world.judge.lock().unwrap().leaves(leads.store.epoch());
        // Its listeners are open meanwhile, and nodes call.
        if let Err(error) = leads.service.shut_down() {
            explained(world, &error);
        }
        if leads.store.has_left() {
            world.judge.lock().unwrap().left = Some(leads.store.epoch());
        }
        leads.saved = true;
        return (Role::Leads(leads), 0);
    }
    heed(world, at, life, &leads.service);
    leads.service.leasing().expire();
    if world.now() >= leads.flush_at {
        leads.flush_at = world.now() + 500 * MS;
        let farewells = std::mem::take(&mut machine.lock().farewells);
        if leads.service.upkeep().flush().is_ok() && life.load(Ordering::Relaxed) {
            streams::farewell(world, farewells);
        }
    }
    let is_missing = world.judge.lock().unwrap().missing().is_some();
    match world.draws.below(8) {
        what if what < 2 || is_missing => define(world, life, &leads.service),
        2 => drop(leads.store.checkpoint_if_due()),
        _ => {}
    }
    (Role::Leads(leads), 50 * MS + world.draws.below(150 * MS))
}

/// Stores what nodes brought of other controllers.
fn heed(world: &Arc<World>, at: usize, life: &Life, service: &Service) {
    let news = std::mem::take(&mut world.machines[at].lock().news);
    for news in news {
        let name = format!("node-{}", news.over.node);
        let heeded = service.leasing().heed(&name, &news.seen);
        if life.load(Ordering::Relaxed) {
            streams::heeded(world, &news, heeded.is_ok());
        }
    }
}

/// Creates a group.
fn define(world: &Arc<World>, life: &Life, service: &Service) {
    let name = world.judge.lock().unwrap().new_name();
    let definition = groups::definition(&name, world.ttl);
    let made = service.definitions().create_group(&Actor::new(None, "t"), &definition, true);
    if made.is_ok() && life.load(Ordering::Relaxed) {
        world.judge.lock().unwrap().acknowledged.push(name);
    }
}

/// The end of a clean stop.
fn leave(world: &Arc<World>, at: usize, leads: Leads) -> (Role, u64) {
    let is_beating = {
        let mut state = world.machines[at].lock();
        (state.beats, state.is_to_stop) = (None, false);
        state.is_beating
    };
    if is_beating {
        // Its thread ends first.
        return (Role::Leads(leads), MS);
    }
    if world.draws.below(6) == 0 {
        crash(world, at, world.draws.below(SECOND), false);
        return (Role::Down, 0);
    }
    let left = leave_log(&leads.store, &leads.service).is_ok() && leads.store.has_left();
    world.judge.lock().unwrap().left = left.then_some(leads.store.epoch());
    world.machines[at].lock().end_leadership();
    (Role::Down, 100 * MS + world.draws.below(3 * SECOND))
}
