"""Deterministic simulation of the run protocol: real servers' and launchers' code on virtual time and a bad network.

One seed is one world: a few servers on one model store, machines with a launcher and its agents, clients, a network
that loses, duplicates and delays messages, processes that stop and come back, a wall clock that steps. Only the
network, the agents and the time are simulated; dispatcher, launcher loop, services and core are the real ones. So a
failing seed fails again.

    python -m moorage.testing.simulation                        # 100,000 steps
    python -m moorage.testing.simulation --steps 10000000       # the long run
    python -m moorage.testing.simulation --seed 17              # one world again, with its events on stderr
"""

from moorage.testing.simulation.world import Outcome, World, simulate

__all__ = ["Outcome", "World", "simulate"]
