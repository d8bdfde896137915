"""`python -m models.weights`: fetch, verify, list, pin, lock. Only this program knows profiles; `models` does not."""

import configs
from models.weights.cli import main
from models.weights.files import WeightsError


def weights_of(profile: str) -> set[str]:
    """Names of the weights that `profile` loads. Raises WeightsError for a profile that there is not."""
    try:
        servings = [model.serving for model in configs.load(profile).deployed()]
    except configs.CatalogError as error:
        raise WeightsError(str(error)) from None
    return {serving.weights for serving in servings if serving and serving.weights}


main(weights_of=weights_of)
