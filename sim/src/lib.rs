//! The real kernel and the real engine on a simulated clock and a store that fails.
//!
//! In reading order:
//! - [`rng`]: numbers that a seed decides
//! - [`plant`]: bugs put in on purpose, to show that the simulator can fail
//! - [`disk`]: a store that refuses, tears, loses its answers and its unsynced writes, and whose slots are taken from nodes that are
//!   not seen
//! - [`script`]: what the clients do
//! - [`node`]: one engine, without the shell's threads and locks
//! - [`world`]: the clock, the clients, the faults
//! - `trouble`: what happens to the machines of nodes: pauses, cut connections, crashes, late and lost hints
//! - `followers`: those who follow events, and move between nodes
//! - `witness`: whether answers that wrote nothing were out of date
//! - [`check`]: what must hold
//!
//! Always: the same seed gives the same trace, byte for byte. Never: a clock, a thread, a hash map.

pub mod check;
pub mod disk;
mod followers;
pub mod node;
pub mod plant;
pub mod rng;
pub mod script;
mod trouble;
mod witness;
pub mod world;

pub use plant::Plant;
pub use world::{Report, Worlds, run};
