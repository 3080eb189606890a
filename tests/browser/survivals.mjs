export const survivals = {};
