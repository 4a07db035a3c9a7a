//! The journal on simulated and on real folders.

mod damage;
mod faults;
mod files;
mod power_loss;
mod recent;
mod repair;
mod scene;
