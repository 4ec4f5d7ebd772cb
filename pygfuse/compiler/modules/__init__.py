"""The capture of whole modules, which gather and reduce along edges themselves."""
