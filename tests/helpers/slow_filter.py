"""The filter in plain loops over prompts and hypotheses, for binary and other rewards in [0, 1]; without shocks."""

import math

WALKS = (0.03, 0.064, 0.135, 0.29, 0.61, 1.3)
OWN = ((-0.03, 0.1), (0.03, 0.1), (-0.1, 0.03), (0.1, 0.03), (-0.22, 0.05), (0.22, 0.05))
MOVES = [(q, 0.0) for q in WALKS] + [(q, d) for d, q in OWN] + [(0.05, 0.0)] * 2
K = len(WALKS) + len(OWN)
_SLOW = [max(q, 0.1) ** -0.5 for q in WALKS]
FIRST = [0.85 * v / sum(_SLOW) for v in _SLOW] + [0.15 / 6] * 6
OWN_DRIFTS = [0.15, 0.15, 0, 0, 0, 0] + [0.7 / 6] * 6
MIXTURE = [0.75 * p for p in FIRST] + [0.15, 0.1]
JUMPS, JUMP_PRIOR = (0.0005, 0.005, 0.03, 0.15), (0.6, 0.25, 0.1, 0.05)


def stirling(z):
    """Log Gamma by Stirling's formula from the next integer on, but for a constant."""
    return (z + 0.5) * math.log(z + 1) - z + 1 / (12 * (z + 1)) - math.log(z)


def normalised(weights):
    total = math.fsum(weights)
    return [w / total for w in weights]


def softmax(logs):
    return normalised([math.exp(v - max(logs)) for v in logs])


def log_evidence(a, b, n, s, lgamma=stirling):
    return lgamma(a + s) - lgamma(a) + lgamma(b + n - s) - lgamma(b) - lgamma(a + b + n) + lgamma(a + b)


def first_dispersion(sums):
    k, mean, _, alone, inverse = sums
    middle = (mean + 0.5) / (k + 1)
    return 1.0 if k > inverse else max(1 - alone / max(k, 1) / (middle * (1 - middle)), 0.01)


def prior_of(sums, phi):
    k, mean, square, within, inverse = sums
    inverse = phi * inverse
    freedom = k - inverse
    n = max(k, 1e-9)
    middle = min(max((mean + 0.5) / (k + 1), 1e-3), 1 - 1e-3)
    variance = middle * (1 - middle) / 1.7
    if k > 5.5 and freedom > 1e-6 * n:
        noise = within / freedom * inverse / n
        spread = max(square - mean**2 / n, 0) / max(n - 5, 0.5) - noise
        variance = max(spread, 0) * (1 + 1 / n) + noise / n
    size = min(max(middle * (1 - middle) / max(variance, 1e-6) - 1, 0.05), 300)
    return middle * size, (1 - middle) * size


class SlowFilter:
    """State of a run: ``step(step, {prompt: rewards})`` gives ``{prompt: values}``."""

    def __init__(self, lgamma=stirling):
        self.lgamma, self.kept, self.newest, self.last = lgamma, {}, {}, None
        self.mixture, self.jumps = [math.log(p) for p in MIXTURE], [math.log(p) for p in JUMP_PRIOR]
        self.each, self.dispersion, self.population = [8 * p for p in FIRST], [0.0, 0.0], [0.0] * 5

    def step(self, step, groups):
        lags = [step - self.newest[name] for name in groups if name in self.newest]
        elapsed = (step - self.last) / (sum(lags) / len(lags)) if lags and self.last is not None else 0.0
        within, between = self.dispersion
        phi = dispersion(within, between) if within + between else first_dispersion(self.population)
        switched = 0.98 ** max(elapsed, 1.0)
        mixture = [switched * w + (1 - switched) * p for w, p in zip(softmax(self.mixture), MIXTURE, strict=True)]
        learned = normalised(self.each)
        manners = [[0.98 * (j == k) + 0.02 * learned[j] for j in range(K)] for k in range(K)] + [learned, OWN_DRIFTS]
        ways = [math.fsum(m * manner[j] for m, manner in zip(mixture, manners, strict=True)) for j in range(K)]
        jump = math.fsum(p * w for p, w in zip(JUMPS, softmax(self.jumps), strict=True))

        def past_of(name, phi, here):  # belief in completions of the dispersion of here, and those that it counts as
            prior, kept = prior_of(self.population, phi), self.kept.get(name)
            belief = unknown() if kept is None else moved(kept, ways, jump, prior, phi)
            belief = ([n * here / phi for n in belief[0]], [s * here / phi for s in belief[1]], *belief[2:])
            weight = probabilities(belief, ways, jump)
            return belief, [math.fsum(w * part for w, part in zip(weight, belief[j], strict=True)) for j in (0, 1)]

        past = {name: past_of(name, phi, phi)[1] for name in groups}
        told = {name: self._told(groups, name, past, phi) for name in groups}
        beliefs = {name: past_of(name, *told[name])[0] for name in groups}
        each = {name: moments(past[name][0] + len(z), past[name][1] + sum(z)) for name, z in groups.items()}
        now = [math.fsum(column) for column in zip(*each.values(), strict=True)]
        share = min(max(100 - now[0], 0) / (self.population[0] or 1), 1)
        earlier = {name: [*self.population[:4], self.population[4] * was / here] for name, (was, here) in told.items()}
        sums = {name: [share * p + v for p, v in zip(past, now, strict=True)] for name, past in earlier.items()}

        values, gains, kept_ways, jumped, after = {}, [0.0] * (K + 2), [0.0] * K, [0.0] * 4, {}
        for name, rewards in groups.items():
            phi = told[name][1]
            prior = prior_of([s - own for s, own in zip(sums[name], each[name], strict=True)], phi)
            values[name] = loo_values(rewards, beliefs[name], ways, jump, prior, phi, self.lgamma)
            after[name], gained = updated(rewards, beliefs[name], ways, prior, phi, self.lgamma)
            if name in self.kept:
                odds = beliefs[name][3][:K]
                for j, manner in enumerate(manners):
                    better = math.fsum(m * o * g for m, o, g in zip(manner, odds, gained, strict=True))
                    gains[j] += math.log(better / math.fsum(m * o for m, o in zip(manner, odds, strict=True)))
                for j, w in enumerate(probabilities(after[name], ways, jump)[:K]):
                    kept_ways[j] += w
                ratio = after[name][3][-1] or 1.0
                for j, p in enumerate(JUMPS):
                    jumped[j] += math.log(1 + p * (min(ratio, 1e6) - 1))
        self._learn(groups, past, elapsed, mixture, gains, kept_ways, jumped)
        self.population = [math.fsum(column) / len(sums) for column in zip(*sums.values(), strict=True)]
        self.kept |= after
        self.newest |= dict.fromkeys(groups, step)
        self.last = step if lags else self.last
        return values

    def _told(self, groups, name, past, phi):
        """Dispersion of a prompt's past and of its rewards now, from the other prompts."""
        squares, count, soft = squares_of({other: z for other, z in groups.items() if other != name}, past)
        within, between = self.dispersion
        if within + between > 0:
            return phi, dispersion(within, between * (1 if soft else 0.97**count))
        return (dispersion(*squares),) * 2 if soft else (phi, 1.0)

    def _learn(self, groups, past, elapsed, mixture, gains, kept_ways, jumped):
        kept = 0.9**elapsed
        self.mixture = self._faded([math.log(p) for p in mixture], [math.log(p) for p in MIXTURE], kept, gains)
        self.jumps = self._faded(self.jumps, [math.log(p) for p in JUMP_PRIOR], kept, jumped)
        self.each = self._faded(self.each, [8 * p for p in FIRST], kept, kept_ways)
        faded = min(kept, 0.9**0.1)
        self.dispersion = [faded * v for v in self.dispersion]
        squares, count, soft = squares_of(groups, past)
        self.dispersion[1] *= 1 if soft else 0.97**count
        self.dispersion = [v + new for v, new in zip(self.dispersion, squares, strict=True)]

    @staticmethod
    def _faded(old, first, kept, gained):
        return [kept * v + (1 - kept) * f + g for v, f, g in zip(old, first, gained, strict=True)]


def squares_of(groups, past):
    """Squares of rewards around their mean, as many for zeros and ones, completions, and whether some are neither."""
    squares = [0.0, 0.0]
    for name, rewards in groups.items():
        mean, count = sum(rewards) / len(rewards), len(rewards)
        if count > 1:
            squares[0] += sum((z - mean) ** 2 for z in rewards)
            squares[1] += (count - 1) / count * sum(z * (1 - z) for z in rewards)
        elif past[name][0] > 0:
            n, total = past[name]
            squares[0] += n / (n + 1) * (mean - total / n) ** 2
            squares[1] += mean * (1 - mean)
    rewards = [z for group in groups.values() for z in group]
    return squares, len(rewards), any(z not in (0, 1) for z in rewards)


def dispersion(within, between):
    return max((within + 0.05) / (within + between + 0.05), 0.01)


def unknown():
    return [0.0] * (K + 2), [0.0] * (K + 2), [1.0] * (K + 2), [1.0] * K + [0.0, 0.0]


def moments(n, s):
    m = s / n
    return [1.0, m, m * m, m * (1 - m), min(1 / n, 1.0)]


def probabilities(belief, ways, jump):
    odds = belief[3]
    of_ways = [w * o for w, o in zip(ways, odds[:K], strict=True)]
    return normalised([*of_ways, *(jump * sum(of_ways) * o for o in odds[K:])])


def moved(belief, ways, jump, prior, phi):
    weight = probabilities(belief, ways, jump)
    stay, aged, all_ways = [0.998 * w for w in weight[:K]], weight[-1], sum(weight[:K])
    inflow = 0.002 * all_ways + aged
    mass = [v + w * inflow for v, w in zip(stay, ways, strict=True)]
    entering = [w * inflow + 0.02 * f * all_ways for w, f in zip(ways, FIRST, strict=True)]
    mixed = []
    for part, fresh in zip(belief[:3], (0.0, 0.0, 1.0), strict=True):
        changed = math.fsum(0.022 * w * x for w, x in zip(weight[:K], part[:K], strict=True))
        enters = (changed + aged * part[-1]) / (inflow + 0.02 * all_ways)
        of_ways = [(v * x + e * enters) / (v + e) for v, e, x in zip(stay, entering, part[:K], strict=True)]
        mixed.append([*of_ways, fresh, part[K]])
    total_mass = sum(mass)
    odds = [m / (total_mass * w) for m, w in zip(mass, ways, strict=True)]
    odds += [1 / (total_mass * (1 - jump)), belief[3][K] * all_ways / total_mass]
    out = [[], [], []]
    for (q, d), n, s, share in zip(MOVES, *mixed, strict=True):
        if d and n:
            factor = math.exp(d * math.sqrt(phi))
            ratio = (s * factor + n - s) / n
            s, n = s * ratio, s * ratio + (n - s) * ratio / factor
        a, b = share * prior[0] + s / phi, share * prior[1] + (n - s) / phi
        slope = a * b / (a + b) ** 2
        precision = q * q * slope * n
        of_prior = q * q * slope * phi * sum(prior) * share
        left = 1 / (1 + precision)
        for part, value in zip(out, (n * left, s * left, share * left / (1 + precision + of_prior)), strict=True):
            part.append(value)
    return (*out, odds)


def betas(belief, prior, phi):
    return [
        (share * prior[0] + s / phi, share * prior[1] + (n - s) / phi) for n, s, share in zip(*belief[:3], strict=True)
    ]


def loo_values(rewards, belief, ways, jump, prior, phi, lgamma):
    weight, values = probabilities(belief, ways, jump), []
    for g in range(len(rewards)):
        n, s = (len(rewards) - 1) / phi, (sum(rewards) - rewards[g]) / phi
        of_each = betas(belief, prior, phi)
        likely = [w * math.exp(log_evidence(a, b, n, s, lgamma)) for w, (a, b) in zip(weight, of_each, strict=True)]
        means = [(a + s) / (a + b + n) for a, b in of_each]
        values.append(math.fsum(w * m for w, m in zip(likely, means, strict=True)) / math.fsum(likely))
    return values


def evidence_of_group(a, b, rewards, phi, lgamma):
    n, s = len(rewards), sum(rewards)
    if phi != 1 or any(z not in (0, 1) for z in rewards):
        return log_evidence(a, b, n / phi, s / phi, lgamma)
    mean = (a + max(s - 1, 0)) / (a + b + n - 1)  # of one completion, given the others
    return log_evidence(a, b, n - 1, max(s - 1, 0), lgamma) + math.log(mean if s else 1 - mean)


def updated(rewards, belief, ways, prior, phi, lgamma):
    n, s = len(rewards), sum(rewards)
    logs = [evidence_of_group(a, b, rewards, phi, lgamma) for a, b in betas(belief, prior, phi)]
    gained = [math.exp(v - max(logs[:K])) for v in logs]
    odds = [o * g for o, g in zip(belief[3], gained, strict=True)]
    together = math.fsum(w * o for w, o in zip(ways, odds[:K], strict=True))
    part = [x + n for x in belief[0]], [x + s for x in belief[1]], belief[2], [o / together for o in odds]
    return part, gained[:K]
