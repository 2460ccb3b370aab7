# The package, and the module for NixOS: docs/install.md.
{
  description = "Attach any number of clients to the streams or terminal of a systemd service";

  inputs.nixpkgs.url = "nixpkgs";

  outputs = { self, nixpkgs }:
    let
      for = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ];
    in
    {
      packages = for (system: {
        default = nixpkgs.legacyPackages.${system}.callPackage ./package.nix { };
      });
      nixosModules.default = import ./module.nix;
    };
}
