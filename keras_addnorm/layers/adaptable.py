"""What the layers share whose weights Keras adapts (LoRA) or quantises."""

from __future__ import annotations

from typing import Any

import keras

from keras_addnorm.layers.lora import lora_variables, redraw


class AdaptableLayer(keras.layers.Layer):
    """A base, before that of Keras, of a layer of ours with LoRA and quantisation.

    ```python
    class Projection(AdaptableLayer, keras.layers.Dense): ...
    ```
    """

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Quantise the weights, as the layer of Keras does."""
        # The check of Keras would refuse this class, too, as a subclass of its own layer.
        if type_check and AdaptableLayer not in type(self).__bases__:
            raise self._not_implemented_error(self.quantize)
        super().quantize(mode, type_check=False, config=config)

    def load_own_variables(self, store: Any) -> None:
        """Load the weights; LoRA, whose matrices a saved weight contains, begins anew."""
        super().load_own_variables(store)
        if self.lora_enabled:
            first, _ = lora_variables(self)
            redraw(first)
