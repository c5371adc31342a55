import copy
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from tercet.errors import InputError, SettingError
from tercet.evaluation.tasks import logistic
from tercet.evaluation.tasks.classifier import score_folds, score_nested, score_split, stratified_folds
from tercet.evaluation.tasks.logistic import ClassifierSettings, Splits, fit_together, improve
from tercet.evaluation.tasks.probe import fit_streaming

QUICK = ClassifierSettings(folds=3, max_epochs=12)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


def blobs(num_rows, *, width=12, num_classes=2, spread=1.0, seed=0):
    """Gaussian classes that overlap."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, num_rows)
    centres = np.random.default_rng(99).standard_normal((num_classes, width)) * spread / np.sqrt(width) * 2
    return (centres[labels] + rng.standard_normal((num_rows, width))).astype(np.float32), labels


def plain_fit(train, dev, l2, settings, rng):
    """SentEval's training of one classifier, in plain torch."""
    torch.manual_seed(settings.seed)
    x, y = torch.from_numpy(train[0]), torch.from_numpy(train[1])
    layer = torch.nn.Linear(x.shape[1], int(y.max()) + 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=settings.learning_rate, weight_decay=l2)
    best, failures, epoch = -1.0, 0, 0
    while failures <= settings.tenacity and epoch <= settings.max_epochs:
        for _ in range(settings.epochs_per_round):
            for rows in torch.from_numpy(rng.permutation(len(x))).split(settings.batch):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
        epoch += settings.epochs_per_round
        guesses = layer(torch.from_numpy(dev[0])).argmax(dim=1).numpy()
        accuracy = float(np.mean(guesses == dev[1]))
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(layer)
        else:
            failures += 1
    weights = torch.cat([kept.weight, kept.bias[:, None]], dim=1).detach().numpy()
    return weights, best, epoch


def fit_splits(features, labels, splits, l2=(1e-3,), settings=QUICK):
    """All splits with all L2 values, as one problem."""
    num_splits = splits.train.shape[1]
    return fit_together(
        lambda rows: features[rows],
        np.eye(labels.max() + 1, dtype=np.float32)[labels],
        splits=splits,
        split_of_fit=np.repeat(np.arange(num_splits), len(l2)),
        l2_of_fit=np.tile(np.asarray(l2), num_splits),
        settings=settings,
    )


def fold_splits(labels, folds):
    dev = stratified_folds(labels, folds=folds)[:, None] == np.arange(folds)
    return Splits(~dev, dev)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_fits_over_the_same_rows_have_the_weights_of_plain_torch_trainings(num_classes):
    features, labels = blobs(500, num_classes=num_classes)
    train = np.arange(500)[:, None] < 400
    settings = ClassifierSettings(max_epochs=60)
    l2 = (1e-5, 1e-2, 1e-1)
    fits = fit_splits(features, labels, Splits(train, ~train), l2, settings)
    for place, decay in enumerate(l2):
        reference, accuracy, num_epochs = plain_fit(
            (features[:400], labels[:400]),
            (features[400:], labels[400:]),
            decay,
            settings,
            np.random.RandomState(settings.seed),
        )
        np.testing.assert_allclose(fits.weights[place].numpy(), reference, atol=1e-4)
        assert fits.dev_scores[place] == accuracy
        assert fits.num_epochs[place] == num_epochs


def test_the_last_fit_of_the_fold_protocol_is_senteval_s():
    features, labels = blobs(300, num_classes=3)
    test_features, test_labels = blobs(100, num_classes=3, seed=1)
    settings = replace(QUICK, l2=(1e-3,))
    outcome = score_folds(features, labels, test_features=test_features, test_labels=test_labels, settings=settings)
    rng = np.random.RandomState(settings.seed)
    order = rng.permutation(300)
    dev, train = order[:15], order[15:]
    weights, *_ = plain_fit((features[train], labels[train]), (features[dev], labels[dev]), 1e-3, settings, rng)
    guesses = (test_features @ weights[:, :-1].T + weights[:, -1]).argmax(axis=1)
    np.testing.assert_array_equal(outcome.predictions, guesses)
    assert outcome.accuracy == np.mean(guesses == test_labels)
    assert outcome.num_fits == 4


def test_folds_fitted_together_score_like_folds_fitted_alone():
    features, labels = blobs(900)
    splits = fold_splits(labels, 5)
    settings = ClassifierSettings(max_epochs=60)
    together = fit_splits(features, labels, splits, settings=settings)
    alone = []
    for fold in range(5):
        train, dev = splits.train[:, fold], splits.dev[:, fold]
        rng = np.random.RandomState(settings.seed)
        alone.append(plain_fit((features[train], labels[train]), (features[dev], labels[dev]), 1e-3, settings, rng)[1])
    assert together.dev_scores == pytest.approx(np.array(alone), abs=0.02)
    assert together.dev_scores.mean() == pytest.approx(np.mean(alone), abs=0.01)


def test_rows_outside_a_fit_never_influence_it():
    features, labels = blobs(300)
    splits = fold_splits(labels[:200], 4)
    pad = np.zeros((100, 4), dtype=bool)
    splits = Splits(np.concatenate([splits.train, pad]), np.concatenate([splits.dev, pad]))
    splits.train[200:, 1:] = True  # in the shared batches, but not of the first fit
    before = fit_splits(features, labels, splits)
    changed, relabelled = features.copy(), labels.copy()
    changed[200:] = 1000 * changed[200:] + 7
    relabelled[200:] = 1 - relabelled[200:]
    after = fit_splits(changed, relabelled, splits)
    np.testing.assert_allclose(after.weights[0].numpy(), before.weights[0].numpy(), atol=1e-6)
    assert after.dev_scores[0] == before.dev_scores[0]
    assert not np.allclose(after.weights[1].numpy(), before.weights[1].numpy(), atol=1e-2)


def test_a_fit_is_the_same_whether_or_not_other_fits_stop_before_it():
    features, labels = blobs(300)
    settings = ClassifierSettings(max_epochs=80, tenacity=1)
    train = np.arange(300)[:, None] < 200
    many = fit_splits(features, labels, Splits(train, ~train), (1e-5, 3e-1, 1.0), settings)
    assert len(set(many.num_epochs)) > 1
    for place, l2 in enumerate((1e-5, 3e-1, 1.0)):
        one = fit_splits(features, labels, Splits(train, ~train), (l2,), settings)
        np.testing.assert_allclose(many.weights[place].numpy(), one.weights[0].numpy(), atol=1e-5)
        assert many.num_epochs[place] == one.num_epochs[0]


def test_the_count_of_failures_never_resets():
    best, failures = torch.full((1,), -torch.inf), torch.zeros(1, dtype=torch.int64)
    history = [0.5, 0.4, 0.6, 0.6, 0.7, 0.1, 0.8, 0.1, 0.9, 0.2, 0.95, 0.3]
    stops = [bool(improve(torch.tensor([s]), best, failures, tenacity=5)[1]) for s in history]
    assert failures.item() == 6
    assert stops == [False] * 11 + [True]
    assert best.item() == pytest.approx(0.95)


@pytest.mark.parametrize("labels", [np.arange(97) % 3, np.array([5, 2] * 30 + [9] * 7 + [2] * 11)])
def test_folds_are_scikit_learn_s(labels):
    folds = stratified_folds(labels, folds=5, seed=7)
    expected = StratifiedKFold(5, shuffle=True, random_state=7).split(labels, labels)
    for fold, (_, test) in enumerate(expected):
        np.testing.assert_array_equal(np.flatnonzero(folds == fold), test)


def test_folds_cover_all_rows_and_spread_every_label_evenly():
    labels = np.random.default_rng(0).integers(0, 4, 503)
    folds = stratified_folds(labels)
    assert set(folds) == set(range(10))
    for label in range(4):
        counts = np.bincount(folds[labels == label], minlength=10)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(folds, stratified_folds(labels, seed=1))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_both_classifiers_agree_under_every_protocol(num_classes):
    features, labels = blobs(1500, num_classes=num_classes, spread=1.5)
    dev = blobs(1000, num_classes=num_classes, spread=1.5, seed=1)
    test = blobs(2000, num_classes=num_classes, spread=1.5, seed=2)
    tested = {"test_features": test[0], "test_labels": test[1]}
    # Early stopping on the usual 5%, here 50 to 75 rows, costs a point or two against the optimum, as in SentEval.
    settings = ClassifierSettings(l2=(1e-4, 1e-2), folds=3, held_out=0.2)
    for score, extra in (
        (score_nested, {}),
        (score_folds, tested),
        (score_split, {"dev_features": dev[0], "dev_labels": dev[1], **tested}),
    ):
        ours = score(features, labels, settings=settings, **extra)
        theirs = score(features, labels, settings=settings, classifier="sklearn", **extra)
        assert ours.accuracy == pytest.approx(theirs.accuracy, abs=0.02)
        assert ours.num_fits == theirs.num_fits
        assert np.mean(ours.predictions == theirs.predictions) > 0.9
        assert ours.accuracy > 1 / num_classes + 0.2


def test_nested_folds_agree_with_a_loop_written_over_scikit_learn():
    features, labels = blobs(180)
    settings = ClassifierSettings(l2=(1e-4, 1e-2), folds=3)
    outcome = score_nested(features, labels, classifier="sklearn", settings=settings)
    accuracies = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=1111).split(features, labels):
        means = []
        for l2 in settings.l2:
            inner = StratifiedKFold(3, shuffle=True, random_state=1111).split(train, labels[train])
            means.append(
                np.mean(
                    [
                        LogisticRegression(C=2 / (l2 * len(a)), max_iter=10_000)
                        .fit(features[train[a]].astype(float), labels[train[a]])
                        .score(features[train[b]], labels[train[b]])
                        for a, b in inner
                    ]
                )
            )
        l2 = settings.l2[int(np.argmax(np.round(means, 4)))]
        model = LogisticRegression(C=2 / (l2 * len(train)), max_iter=10_000)
        accuracies.append(model.fit(features[train].astype(float), labels[train]).score(features[test], labels[test]))
    assert outcome.accuracy == pytest.approx(np.mean(accuracies))
    assert outcome.num_fits == 3 * 3 * 2 + 3


@pytest.mark.parametrize("num_classes", [2, 3])
def test_scikit_learn_gets_the_penalty_of_the_softmax_with_weight_decay(num_classes):
    features, labels = blobs(300, num_classes=num_classes)
    l2 = 0.03
    settings = ClassifierSettings(l2=(l2,))
    kwargs = {"dev_features": features, "dev_labels": labels, "test_features": features, "test_labels": labels}
    outcome = score_split(features, labels, classifier="sklearn", settings=settings, **kwargs)
    x, y = torch.from_numpy(features).double(), torch.from_numpy(labels)
    weight = torch.zeros(num_classes, 12, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(num_classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def loss():
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(x @ weight.T + bias, y) + l2 / 2 * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    guesses = (x @ weight.T + bias).argmax(dim=1).numpy()
    assert np.mean(guesses == outcome.predictions) > 0.995


def test_the_same_seed_gives_the_same_result_and_leaves_the_global_generators_alone():
    features, labels = blobs(200)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    splits = fold_splits(labels, 3)
    first, second = fit_splits(features, labels, splits), fit_splits(features, labels, splits)
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    other = fit_splits(features, labels, splits, settings=replace(QUICK, seed=5))
    assert not torch.equal(first.weights, other.weights)


def test_predictions_are_the_labels_that_were_given():
    features, labels = blobs(120, spread=5)
    outcome = score_nested(features, np.where(labels == 1, 30, -4), settings=QUICK)
    assert set(outcome.predictions) == {30, -4}
    assert np.mean(outcome.predictions == np.where(labels == 1, 30, -4)) == pytest.approx(outcome.accuracy)
    assert len(outcome.l2) == 3


def test_streamed_features_give_the_weights_of_features_in_memory(monkeypatch):
    features, labels = blobs(500, num_classes=3)
    train = np.arange(500)[:, None] < 400
    whole = fit_splits(features, labels, Splits(train, ~train), QUICK.l2)
    asked = []

    def stream(rows):
        asked.append(len(rows))
        return features[rows]

    monkeypatch.setattr(logistic, "_CHUNK_BYTES", 16_000)
    rows = np.arange(500)
    probe = fit_streaming(stream, labels, train_rows=rows[:400], dev_rows=rows[400:], settings=QUICK)
    assert max(asked) < 400
    place = QUICK.l2.index(probe.l2)
    assert probe.dev_score == whole.dev_scores[place] == whole.dev_scores.max()
    np.testing.assert_allclose(probe.weights.numpy(), whole.weights[place].numpy(), atol=1e-5)
    guesses = probe.predict(stream, rows[400:])
    assert np.mean(guesses == labels[400:]) == probe.dev_score


def test_scores_are_learned_as_levels():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((1500, 8)).astype(np.float32)
    scores = (2.5 + features @ rng.standard_normal(8) / 2).clip(0, 5)
    rows = np.arange(1500)
    probe = fit_streaming(
        lambda rows: features[rows],
        scores,
        train_rows=rows[:1000],
        dev_rows=rows[1000:1200],
        levels=(0, 1, 2, 3, 4, 5),
        settings=replace(QUICK, max_epochs=100),
    )
    predicted = probe.predict(lambda rows: features[rows], rows[1200:])
    assert np.corrcoef(predicted, scores[1200:])[0, 1] > 0.97
    dev = probe.predict(lambda rows: features[rows], rows[1000:1200])
    assert probe.dev_score == pytest.approx(np.corrcoef(dev, scores[1000:1200])[0, 1], abs=1e-5)
    assert np.abs(predicted - scores[1200:]).mean() < 0.4


def test_a_score_outside_the_levels_is_refused():
    features, _ = blobs(10)
    rows = np.arange(10)
    with pytest.raises(InputError, match=r"score out of range: 7"):
        fit_streaming(
            lambda rows: features[rows], np.full(10, 7.0), train_rows=rows[:5], dev_rows=rows[5:], levels=(0, 5)
        )


def test_a_test_label_that_was_never_trained_is_refused_by_name():
    features, labels = blobs(60)
    with pytest.raises(InputError, match=r"label 18 is not in the training set: the test set\."):
        score_folds(features, labels, test_features=features, test_labels=labels + 17 * (labels == 1), settings=QUICK)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused_with_their_row(bad):
    features, labels = blobs(60)
    broken = features.copy()
    broken[41, 3] = bad
    with pytest.raises(InputError, match=r"not finite: the data, row 41"):
        score_nested(broken, labels, settings=QUICK)
    with pytest.raises(InputError, match=r"not finite: the test set, row 41"):
        score_folds(features, labels, test_features=broken, test_labels=labels, settings=QUICK)
    rows = np.arange(60)
    with pytest.raises(InputError, match=r"not finite: the features, row 41"):
        fit_streaming(lambda rows: broken[rows], labels, train_rows=rows[:50], dev_rows=rows[50:], settings=QUICK)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(30, dtype=int), r"one label only \(0\)"),
        (np.arange(30) % 15, r"too few rows for 3 folds: 2 with label 0"),
        (np.array([0, 1] * 14 + [1, 8]), r"label in a single row: 8"),
        (np.zeros(29, dtype=int), r"features \(30, 12\) and labels \(29,\) do not fit"),
        (np.zeros(30), r"labels of type float64"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        score_nested(blobs(30)[0], labels, settings=QUICK)


def test_test_features_of_another_width_are_refused():
    features, labels = blobs(60)
    with pytest.raises(InputError, match=r"features of width 11: the test set\. The training set has 12"):
        score_folds(features, labels, test_features=features[:, 1:], test_labels=labels, settings=QUICK)


def test_an_unknown_classifier_and_a_missing_scikit_learn_are_named(monkeypatch):
    features, labels = blobs(60)
    with pytest.raises(SettingError, match=r"unknown classifier: 'svm'\. Use batched or sklearn\."):
        score_nested(features, labels, classifier="svm", settings=QUICK)
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(SettingError, match=r"^sklearn\.linear_model: is not installed, and classifier sklearn"):
        score_nested(features, labels, classifier="sklearn", settings=QUICK)
