"""The law of the baseline on trial: bandits in which it says beforehand who learns with fewer completions.

`kaestat.theory.baseline_law` predicts the noise of every design, and the completions it needs, from moments of each
prompt in the optimiser's units. Here these moments are exact, the predictions are written down, and then the designs
train. The plan, written before any comparison was run:

- *Cells* are in `simulations.baseline_law.cells`: five worlds under AdamW, SGD and Muon at 64 completions a step,
  three of these at 8 and two at 256, three of a sixth world, and eight held out. Every run has 8,192 completions of
  256 prompts. The held-out cells are computed with the others; they are looked at only to test a correction of the
  law that the others suggest.
- *Designs* are in `simulations.baseline_law.designs`: none with both codings of the reward, batch mean with and
  without weights, one weighted constant, history with and without weights, the true value and the true best baseline,
  GRPO-2, 4, 8, 16 and RLOO-2, 4; a step has at least two groups.
- *Rates.* Each design has its own best rate on each of the six bases: mean accuracy over the budget of four tuning
  runs, on a grid of factors of two that grows until the best lies inside. A best rate at an edge stops the study.
- *Comparison.* Four other runs on each base, the same random numbers for all designs. Inference is over bases
  (Student, five degrees of freedom).
- *Endpoints.* Completions to the accuracy that the best group design (by its tuning runs, all bases) has at 50 % of
  the budget, as a share of what that design needs; the same at 30, 70 and 100 %; mean accuracy over the budget.
- *Inputs of the law* are measured at 10 and 50 % of one run with the true value at a rate fixed in advance, in the
  units of that run's optimiser. Predictions are geometric means over points and bases.
- *The rule.* In each cell that is not held out: the rank correlation over designs of predicted and measured
  completions is at least .8, and predicted and measured completions agree within a factor of 1.3 for at least six
  designs other than the reference. A design that never reaches the target ranks last.
- *None must lose* where rho is at most 1.5 at both points and the mean value at least .5: its mean accuracy is below
  the batch mean's and the true value's.
- *Noise does not bind* where the noise scale of the true value is predicted to be below the batch. Then designs of
  single completions are to need the same completions, within a factor of 1.1.
- *A fault.* The same predictions from inputs in plain units must be worse under AdamW in the world ``loud``.

What was looked at before: learning curves of one such world (``habit``, 64 completions, all optimisers, two bases that
are not among these) to see that designs learn and where rates lie, and moments of all worlds. No held-out world was
looked at.
"""
